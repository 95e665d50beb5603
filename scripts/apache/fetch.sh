#!/usr/bin/env bash
# Brings the pinned Apache Kafka into .cache/apache-kafka/libs with Maven, and the tools of its last
# version before 4.0, a tenth of that, into .cache/apache-kafka-older/libs; and Spark's own connector
# into .cache/spark-kafka/libs. Optional: where Maven or its repository is out of reach it says so in
# one line and succeeds, because nothing else needs it.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cache=$here/../../.cache

# bring POM NAME: what a POM names, into .cache/NAME/libs
bring() {
    local pom=$1 name=$2 tool
    local home=$cache/$name
    if [ "$home/complete" -nt "$pom" ]; then
        echo "apache: already in .cache/$name"
        return
    fi
    for tool in mvn java; do
        if ! command -v "$tool" > /dev/null; then
            echo "apache: skipped, there is no $tool (set KAFKA_HOME to use an installation)"
            return
        fi
    done
    echo "apache: Maven brings what belongs into .cache/$name, half a minute or more..."
    # A fresh folder each time, so that jars of two versions never mix.
    rm -rf "$home"
    mkdir -p "$home"
    if ! timeout 600 mvn --batch-mode --quiet --file "$pom" \
        dependency:copy-dependencies -DincludeScope=runtime \
        "-DoutputDirectory=$home/libs" > "$home/maven.log" 2>&1; then
        echo "apache: skipped, Maven could not bring it; the end of .cache/$name/maven.log:"
        tail -n 5 "$home/maven.log"
        return
    fi
    touch "$home/complete"
    echo "apache: ready in .cache/$name"
}

if [ -z "${KAFKA_HOME:-}" ]; then
    bring "$here/pom.xml" apache-kafka
    # Made anew, too, where it is another JVM's, or was cut off.
    if [ -e "$cache/apache-kafka/complete" ] && ! "$here/kafka.sh" archived 2> /dev/null; then
        echo "apache: a node is started once, so that each starts faster..."
        "$here/kafka.sh" archive || echo "apache: nodes start slowly, their classes have no archive"
    fi
elif [ -d "$KAFKA_HOME/libs" ]; then
    echo "apache: skipped, KAFKA_HOME=$KAFKA_HOME is used"
else
    echo "apache: KAFKA_HOME=$KAFKA_HOME has no libs/ folder; point it at an installation" >&2
    exit 1
fi
bring "$here/older/pom.xml" apache-kafka-older
bring "$here/spark-kafka/pom.xml" spark-kafka
