# shellcheck shell=bash disable=SC2154 # part of scripts/servers, whose variables it uses
# Installing: packages of the system by apt, jars by Maven into .cache/tools. What is there is kept.

maven_plugin=org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies

# cannot_install SERVER WHY
cannot_install() {
    say "$1 cannot be installed on this machine: $2"
    fail "the other servers run without it (scripts/servers run NAME.. -- COMMAND), and 'make quick' needs none"
}

# packages SERVER PACKAGE..
packages() {
    local server=$1
    shift
    if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
        cannot_install "$server" "please install the packages $* yourself; it takes root and apt"
    fi
    say "installing $* for $server (once)"
    if ! apt_install "$@" >"$tools/apt.log" 2>&1; then
        tail -n 20 "$tools/apt.log" >&2
        cannot_install "$server" "apt could not install $*"
    fi
}

apt_install() (
    export DEBIAN_FRONTEND=noninteractive
    options=(-q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)
    # Debian starts a server when its package is installed, unless this file says no.
    policy=/usr/sbin/policy-rc.d
    if [[ ! -e $policy ]]; then
        trap 'rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
    fi
    exec </dev/null
    if [[ -z $(find "$tools" -maxdepth 1 -name apt.updated -mmin -60) ]]; then
        apt-get "${options[@]}" update
        touch "$tools/apt.updated"
    fi
    apt-get "${options[@]}" install -y --no-install-recommends "$@"
)

# Java 17 by name: Cassandra 5 does not start with newer ones, and machines have several.
find_java() {
    local home
    for home in "${JAVA_HOME:-}" /usr/lib/jvm/*; do
        if [[ -x $home/bin/javac ]] && grep -q '^JAVA_VERSION="17\.' "$home/release" 2>/dev/null; then
            java_home=$home
            return 0
        fi
    done
    return 1
}

need_java() {
    find_java || packages "$1" openjdk-17-jdk-headless
    find_java || cannot_install "$1" "no JDK 17 in JAVA_HOME or /usr/lib/jvm"
}

# jars SERVER GROUP ARTIFACT VERSION: the artifact and all that it needs, in .cache/tools/ARTIFACT-VERSION
jars() {
    local home=$tools/$3-$4 work=$tools/$3-$4.new
    [[ ! -d $home ]] || return 0
    command -v mvn >/dev/null || packages "$1" maven
    say "installing $3 $4 into .cache/tools (a minute, once)"
    rm -rf "$work"
    mkdir -p "$work"
    project_with "$2" "$3" "$4" >"$work/pom.xml"
    if ! copy_jars "$work" >"$tools/maven.log" 2>&1; then
        tail -n 20 "$tools/maven.log" >&2
        cannot_install "$1" "Maven could not fetch $2:$3:$4"
    fi
    mv "$work" "$home"
}

copy_jars() {
    local attempt
    for attempt in 1 2 3; do
        echo "attempt $attempt"
        ! JAVA_HOME=$java_home mvn --batch-mode --strict-checksums --file "$1/pom.xml" "$maven_plugin" \
            -DincludeScope=runtime -DoutputDirectory="$1" </dev/null || return 0
    done
    return 1
}

project_with() {
    cat <<END
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>wane.test</groupId>
  <artifactId>servers</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>$1</groupId>
      <artifactId>$2</artifactId>
      <version>$3</version>
    </dependency>
  </dependencies>
</project>
END
}
