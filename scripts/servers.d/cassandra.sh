# shellcheck shell=bash disable=SC2154 # part of scripts/servers, whose variables it uses
# Cassandra 5 from Maven: cas1 is one node in dc1; cas3 has nodes 1 and 2 in dc1 and 3 in dc2.
#
# Each cluster has a network 127.x.y.0/24 of its own, as the nodes of one must share their ports. Run
# by root, each node has a user id of its own: as root it would lock its heap into memory, and rules
# of a firewall can tell whose packets are whose.

cassandra_version=5.0.9
cassandra_lib=$tools/cassandra-all-$cassandra_version

cassandra_install() {
    need_java cassandra
    jars cassandra org.apache.cassandra cassandra-all "$cassandra_version"
}

cassandra_start() {
    local count=1 heap=512m network number seeds
    [[ $1 != cas3 ]] || { count=3 && heap=384m; }
    need_java cassandra
    network=$(python3 "$parts/probe.py" free-network "$count" 9042 7000)
    cassandra_home "$1" "$(cassandra_uid "$network" 1)"
    # All are seeds, so that none waits for another.
    seeds=$(for ((number = 1; number <= count; number++)); do echo "$network.$number"; done | paste -sd ,)
    for ((number = 1; number <= count; number++)); do
        cassandra_start_node "$1" "$number" "$network" "$seeds" "$heap"
    done
}

# cassandra_home NAME UID: sets where nodes keep their files and find their jars. In a clone below a
# private directory other users than root reach nothing: then it is a place in /tmp.
cassandra_home() {
    home=$state/$1 lib=$cassandra_lib
    mkdir -p "$home"
    [[ $2 -ne $(id -u) ]] || return 0
    if ! setpriv "--reuid=$2" --clear-groups test -x "$home" -a -r "$lib"; then
        home=$(mktemp -d /tmp/wane-servers-XXXXXX)
        echo "$home" >"$state/$1/outside"
        chmod 755 "$home"
        lib=$home/lib
        cp -r "$cassandra_lib" "$lib"
    fi
}

# cassandra_start_node NAME NUMBER NETWORK SEEDS HEAP
cassandra_start_node() {
    local address=$3.$2 conf=$home/$2/conf data=$home/$2/data node uid run_as=()
    node=$(make_node "$1" "$2")
    mkdir -p "$conf" "$data/tmp"
    cassandra_yaml "$address" "$2" "$4" >"$conf/cassandra.yaml"
    cassandra_place "$2" >"$conf/cassandra-rackdc.properties"
    cp "$parts/logback.xml" "$parts/cassandra.options" "$conf/"
    uid=$(cassandra_uid "$3" "$2")
    if [[ $uid -ne $(id -u) ]]; then
        chown -R "$uid:$uid" "$data"
        run_as=(setpriv "--reuid=$uid" "--regid=$uid" --clear-groups)
    fi
    start_node "$node" "$uid" "$address:9042" "${run_as[@]}" \
        "$java_home/bin/java" "@$conf/cassandra.options" "-Xms$5" "-Xmx$5" \
        "-javaagent:$(echo "$lib"/jamm-*.jar)" \
        "-Djava.io.tmpdir=$data/tmp" "-Djna.tmpdir=$data/tmp" \
        "-Dcassandra.storagedir=$data" "-Dcassandra.logdir=$data" \
        -cp "$conf:$lib/*" org.apache.cassandra.service.CassandraDaemon
}

# Two runs on one machine have different networks, and so different users.
cassandra_uid() {
    local x y
    [[ $(id -u) -eq 0 ]] || { id -u && return; }
    IFS=. read -r _ x y <<<"$1"
    echo $((20000 + (x * 256 + y) % 13000 * 3 + $2))
}

cassandra_place() {
    local datacenter=dc1
    [[ $1 -ne 3 ]] || datacenter=dc2
    printf 'dc=%s\nrack=r1\n' "$datacenter"
}

# cassandra_yaml ADDRESS NUMBER SEEDS
cassandra_yaml() {
    local tokens=(0 -6148914691236517205 0 6148914691236517205)
    cat <<END
cluster_name: wane ${3%%,*}
num_tokens: 1
initial_token: "${tokens[$2]}"
auto_bootstrap: false
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: GossipingPropertyFileSnitch
dynamic_snitch: false
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: "$3"
listen_address: $1
rpc_address: $1
storage_port: 7000
native_transport_port: 9042

# A write is on disk before its answer; the default, a sync each ten seconds, loses some to a kill.
commitlog_sync: batch
paxos_variant: v2
# The default, for mixed clusters, refuses to let anything expire after 2038.
storage_compatibility_mode: NONE
disk_failure_policy: stop
commit_failure_policy: stop
auto_snapshot: false

# Small, as up to four nodes share a machine with the tests.
concurrent_reads: 16
concurrent_writes: 16
concurrent_compactors: 1
memtable_heap_space: 64MiB
memtable_offheap_space: 64MiB
commitlog_segment_size: 32MiB
commitlog_total_space: 256MiB
key_cache_size: 8MiB
counter_cache_size: 0MiB
file_cache_size: 64MiB
networking_cache_size: 32MiB
# The defaults are parts of the heap, and with one so small refuse requests that are legal.
native_transport_max_request_data_in_flight: 256MiB
native_transport_max_request_data_in_flight_per_ip: 128MiB
END
}

cassandra_wait() { await "$1" 300 cassandra; }

cassandra_env() {
    local hosts
    hosts=$(for node in $(node_dirs "$1"); do cat "$node/address"; done | paste -sd ,)
    echo "export WANE_CASSANDRA_HOSTS='$hosts'"
    echo "export WANE_CASSANDRA_DATACENTER='dc1'"
}
