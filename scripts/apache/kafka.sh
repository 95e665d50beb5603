#!/usr/bin/env bash
# Runs the Apache Kafka that `make apache` brought, or the one at KAFKA_HOME.
#
#   kafka.sh available                       exit status 0 when it can be run
#   kafka.sh single DIRECTORY PORT [K=V...]  one broker and controller on loopback, in the foreground
#   kafka.sh run SERVER_PROPERTIES           one node, in the foreground
#   kafka.sh format ARGUMENTS...             kafka-storage format
#   kafka.sh dump-log ARGUMENTS...           kafka-dump-log
#   kafka.sh topics|configs|leader-election|producer-perf-test ARGUMENTS...
#   kafka.sh reassign-partitions|delete-records ARGUMENTS...
#   kafka.sh class NAME ARGUMENTS...         any other main class
#   kafka.sh archive                         keep the classes of a node as a JVM has read them, so
#                                            that each starts in half of the time
#   kafka.sh archived                        exit status 0 when the JVM takes what it has kept
#   kafka.sh older-available                 exit status 0 when the next can be run
#   kafka.sh older-class NAME ARGUMENTS...   a main class of the last tools before 4.0
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
home=${KAFKA_HOME:-$here/../../.cache/apache-kafka}
[ ! -d "$home" ] || home=$(cd "$home" && pwd -P) # an archive of classes names their jars so
libs=$home/libs
archive=$home/classes.jsa
older=${KAFKA_OLDER_HOME:-$here/../../.cache/apache-kafka-older}/libs
java=${JAVA_HOME:+$JAVA_HOME/bin/}java

available() {
    compgen -G "$libs/kafka_2.13-*.jar" > /dev/null && command -v "$java" > /dev/null
}

usage() {
    sed -n 's/^# \{0,1\}//; 2,/^set/{/^set/d; p}' "$0" >&2
    exit 2
}

[ $# -ge 1 ] || usage
command=$1
shift
if [ "$command" = available ]; then
    available
    exit
fi
if [ "$command" = older-available ]; then
    compgen -G "$older/kafka-tools-*.jar" > /dev/null && command -v "$java" > /dev/null
    exit
fi
if [ "$command" = older-class ]; then
    libs=$older
    command=class
elif ! available; then
    echo "kafka.sh: no Apache Kafka in $libs, or no java: run 'make apache'" >&2
    exit 1
fi

# Tools are short: one compiler tier and the serial collector start fastest.
kafka() {
    local shared=()
    if [ "$libs" != "$older" ] && [ -e "$archive" ] && [ -z "${ARCHIVE_TO:-}" ]; then
        shared=("-XX:SharedArchiveFile=$archive" -Xlog:cds=off -Xlog:cds+dynamic=off)
    fi
    exec "$java" "${shared[@]}" -cp "$libs/*" "-Dlog4j2.configurationFile=$here/log4j2.properties" "$@"
}
tool=(-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx256m)
# What Apache Kafka's own start script gives a broker, with a heap that fits beside other work.
server=(-server -Xms512m -Xmx512m -XX:+UseG1GC -XX:MaxGCPauseMillis=20
    -XX:InitiatingHeapOccupancyPercent=35 -XX:+ExplicitGCInvokesConcurrent -Djava.awt.headless=true)

single() {
    [ $# -ge 2 ] || usage
    local directory=$1 port=$2
    shift 2
    # Far from the ports that others choose near PORT, and never above 65535.
    local controller=$((port > 50000 ? port - 10000 : port + 10000))
    mkdir -p "$directory"
    cat > "$directory/server.properties" << END
process.roles=broker,controller
node.id=0
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://127.0.0.1:$port
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
controller.quorum.voters=0@127.0.0.1:$controller
log.dirs=$directory/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
END
    printf '%s\n' "$@" >> "$directory/server.properties"
    (kafka "${tool[@]}" kafka.tools.StorageTool format --ignore-formatted \
        --cluster-id holdfast-apache-kafka1 --config "$directory/server.properties") > /dev/null
    kafka "${server[@]}" ${ARCHIVE_TO:+"-XX:ArchiveClassesAtExit=$ARCHIVE_TO"} \
        kafka.Kafka "$directory/server.properties"
}

# Whether this JVM takes an archive: it passes over one of another JVM or of other jars, which would
# go unnoticed but for the time it takes, and it dies of one that was cut off.
takes() {
    [ -e "$1" ] || return
    local quiet=(-XX:ErrorFile=/dev/null -XX:-CreateCoredumpOnCrash)
    { "$java" "${tool[@]}" "${quiet[@]}" -Xshare:on "-XX:SharedArchiveFile=$1" -cp "$libs/*" \
        kafka.tools.StorageTool random-uuid; } > /dev/null 2>&1
}

# One node is started and ended, and writes down what it has loaded. Whatever ends this script ends
# the node, which does not hear a Ctrl-C; and what was not written to its end takes nobody's place.
archive_once() {
    # With its controller's, 10,000 above, below the ports that the kernel gives to whoever asks.
    local port=$((12000 + RANDOM % 10000)) waited=0
    ARCHIVE_TO=$making "$here/kafka.sh" single "$directory" "$port" > "$directory/log" 2>&1 &
    pid=$!
    until (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do
        if ! kill -0 "$pid" 2> /dev/null || [ $((waited += 1)) -gt 600 ]; then
            return 1
        fi
        sleep 0.2
    done
    kill -TERM "$pid"
    wait "$pid" 2> /dev/null || true # a JVM that is told to end says so in its status
    pid=
    takes "$making"
}

# Nobody keeps a port free for it: where somebody else has it, another one is tried.
archive() {
    making=$archive.$$ directory= pid=
    trap 'discard' EXIT
    for _ in 1 2 3; do
        directory=$(mktemp -d)
        if archive_once; then
            mv "$making" "$archive"
            return
        fi
        tail -n 5 "$directory/log" >&2
        discard
    done
    return 1
}

# Ends what is left of a try, its node and its files.
discard() {
    [ -z "$pid" ] || kill -KILL "$pid" 2> /dev/null || true
    pid=
    rm -rf "$directory" "$making"
}

case $command in
    archive) archive ;;
    archived) takes "$archive" ;;
    single) single "$@" ;;
    run) kafka "${server[@]}" kafka.Kafka "$@" ;;
    format) kafka "${tool[@]}" kafka.tools.StorageTool format "$@" ;;
    dump-log) kafka "${tool[@]}" org.apache.kafka.tools.DumpLogSegments "$@" ;;
    topics) kafka "${tool[@]}" org.apache.kafka.tools.TopicCommand "$@" ;;
    configs) kafka "${tool[@]}" kafka.admin.ConfigCommand "$@" ;;
    leader-election) kafka "${tool[@]}" org.apache.kafka.tools.LeaderElectionCommand "$@" ;;
    reassign-partitions)
        kafka "${tool[@]}" org.apache.kafka.tools.reassign.ReassignPartitionsCommand "$@" ;;
    delete-records) kafka "${tool[@]}" org.apache.kafka.tools.DeleteRecordsCommand "$@" ;;
    producer-perf-test) kafka "${server[@]}" org.apache.kafka.tools.ProducerPerformance "$@" ;;
    class) kafka "${tool[@]}" "$@" ;;
    *) usage ;;
esac
