# shellcheck shell=bash disable=SC2154 # part of scripts/servers, whose variables it uses
# Redis 7 from the system's packages. Nothing that was acknowledged is lost when it is killed: every
# write is in the log on disk before its answer.

redis_install() {
    command -v redis-server >/dev/null || packages redis redis-server
    if ! [[ $(redis-server --version) =~ v=([0-9]+)\. ]] || ((BASH_REMATCH[1] < 7)); then
        cannot_install redis "version 7 is needed, not: $(redis-server --version)"
    fi
}

redis_start() {
    local count=1 node number=0 port ports
    [[ $1 != redis3 ]] || count=3
    ports=$(python3 "$parts/probe.py" free-ports "$count")
    for port in $ports; do
        number=$((number + 1))
        node=$(make_node "$1" "$number")
        start_node "$node" "$(id -u)" "127.0.0.1:$port" \
            redis-server --bind 127.0.0.1 --port "$port" --dir "$node/data" \
            --save '' --appendonly yes --appendfsync always
    done
}

redis_wait() { await "$1" 30 redis; }

redis_env() {
    local urls
    urls=$(for node in $(node_dirs "$1"); do echo "redis://$(<"$node/address")"; done | paste -sd ,)
    case $1 in
        redis) echo "export WANE_REDIS_URL='$urls'" ;;
        redis3) echo "export WANE_STREAM_REDLOCK_URLS='$urls'" ;;
    esac
}
