# shellcheck shell=bash disable=SC2154 # part of scripts/servers, whose variables it uses
# DynamoDB Local from Maven, in memory, one database for all credentials and regions.

dynamodb_version=3.1.0
dynamodb_lib=$tools/DynamoDBLocal-$dynamodb_version

dynamodb_install() {
    need_java dynamodb
    jars dynamodb software.amazon.dynamodb DynamoDBLocal "$dynamodb_version"
}

dynamodb_start() {
    local node port
    need_java dynamodb
    port=$(python3 "$parts/probe.py" free-ports 1)
    node=$(make_node "$1" 1)
    start_node "$node" "$(id -u)" "127.0.0.1:$port" \
        "$java_home/bin/java" -Xmx384m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData \
        "-Djava.library.path=$dynamodb_lib" "-Djava.io.tmpdir=$node/data" -cp "$dynamodb_lib/*" \
        "$parts/LoopbackDynamoDb.java" -inMemory -sharedDb -disableTelemetry -port "$port"
}

dynamodb_wait() { await "$1" 120 dynamodb; }

dynamodb_env() {
    echo "export WANE_DYNAMODB_ENDPOINT='http://$(<"$state/$1/1/address")'"
    echo "export AWS_ACCESS_KEY_ID='wanelocal'"
    echo "export AWS_SECRET_ACCESS_KEY='wanelocal'"
    echo "export AWS_REGION='us-east-1'"
}
