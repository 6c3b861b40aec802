# shellcheck shell=bash disable=SC2154 # part of scripts/servers, whose variables it uses
# Processes of servers: started apart from this shell, known by id and start time, ended for sure.
#
# A process id alone is not enough to end a process by: when it ended by itself, another may have got
# its number. The kernel's start time tells the two apart.

# Prints when a process was started, in ticks since boot; fails for one that has ended.
start_time() {
    local stat fields
    { stat=$(<"/proc/$1/stat"); } 2>/dev/null || return 1
    # The name in parentheses may hold anything; what follows the last one are plain fields.
    read -ra fields <<<"${stat##*) }"
    [[ ${fields[0]} != [ZX] ]] || return 1
    echo "${fields[19]}"
}

# remember PID FILE
remember() {
    echo "$1 $(start_time "$1" || echo ended)" >"$2"
}

# Whether the process that FILE remembers still runs.
is_alive() {
    local pid start
    [[ -e $1 ]] || return 1
    read -r pid start <"$1"
    [[ $(start_time "$pid") == "$start" ]]
}

node_dirs() {
    local node
    for node in "$state/$1"/[0-9]; do
        [[ ! -d $node ]] || echo "$node"
    done
}

dead_nodes() {
    local node
    for node in $(node_dirs "$1"); do
        is_alive "$node/process" || echo "$node"
    done
}

# make_node NAME N: an empty place for a node; prints it.
make_node() {
    local node=$state/$1/$2
    mkdir -p "$node/data"
    echo "$node"
}

# start_node DIRECTORY UID ADDRESS COMMAND..
start_node() {
    echo "$2" >"$1/uid"
    echo "$3" >"$1/address"
    printf '%q ' "${@:4}" >"$1/command"
    launch "$1"
}

# A session of its own keeps a server from the keys that are pressed in this terminal.
launch() {
    (
        exec {lock}>&-
        cd "$1/data" || exit
        exec setsid bash -c "exec $(<"$1/command")"
    ) </dev/null >>"$1/log" 2>&1 &
    remember "$!" "$1/process"
    # Bash would report the end of a job of its own, which here is often the purpose.
    disown
}

# await NAME SECONDS PROBE: returns when all nodes answer; else fails with the reason and the logs.
await() {
    local node pid nodes=()
    for node in $(node_dirs "$1"); do
        read -r pid _ <"$node/process"
        nodes+=("$pid@$(<"$node/address")")
    done
    # Waited for in the background, so that a signal to this shell is acted on at once.
    python3 "$parts/probe.py" "$3" "$2" "${nodes[@]}" &
    wait "$!" && return
    for node in $(node_dirs "$1"); do
        say "the last lines of $node/log:"
        tail -n 25 "$node/log" >&2
    done
    fail "$1 does not answer"
}

# gone_within SECONDS FILE..: whether all remembered processes ended in that time.
gone_within() {
    local file tries=$(($1 * 10))
    for file in "${@:2}"; do
        while is_alive "$file"; do
            ((tries-- > 0)) || return 1
            sleep 0.1
        done
    done
}

# signal_all SIGNAL FILE..
signal_all() {
    local file pid
    for file in "${@:2}"; do
        read -r pid _ <"$file"
        ! is_alive "$file" || kill -s "$1" "$pid" 2>/dev/null || true
    done
}

# Ends the servers, first politely; one that is paused is woken for it. Removes their data.
stop_all() {
    local name processes=()
    for name in "$@"; do
        processes+=("$state/$name"/[0-9]/process)
    done
    # A name that was not started leaves a pattern that matched nothing.
    mapfile -t processes < <(ls -d "${processes[@]}" 2>/dev/null)
    signal_all TERM "${processes[@]}"
    signal_all CONT "${processes[@]}"
    if ! gone_within 10 "${processes[@]}"; then
        signal_all KILL "${processes[@]}"
        gone_within 10 "${processes[@]}" || {
            say "could not end all of: $*; what is left is in $state"
            return 1
        }
    fi
    for name in "$@"; do
        [[ ! -e $state/$name/outside ]] || rm -rf "$(<"$state/$name/outside")"
        rm -rf "${state:?}/$name"
    done
}

# Ends a command of ours and all that it started in its process group.
end_group() {
    local tries=100
    kill -TERM -- "-$1" 2>/dev/null || return 0
    while kill -0 -- "-$1" 2>/dev/null; do
        ((tries-- > 0)) || break
        sleep 0.1
    done
    kill -KILL -- "-$1" 2>/dev/null || true
}
