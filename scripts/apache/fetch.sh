#!/usr/bin/env bash
# Brings the pinned Apache Kafka into .cache/apache-kafka/libs with Maven. Optional: where Maven or
# its repository is out of reach it says so in one line and succeeds, because nothing else needs it.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
home=$here/../../.cache/apache-kafka

if [ -n "${KAFKA_HOME:-}" ]; then
    if [ -d "$KAFKA_HOME/libs" ]; then
        echo "apache: skipped, KAFKA_HOME=$KAFKA_HOME is used"
        exit 0
    fi
    echo "apache: KAFKA_HOME=$KAFKA_HOME has no libs/ folder; point it at an installation" >&2
    exit 1
fi
if [ "$home/complete" -nt "$here/pom.xml" ]; then
    echo "apache: already in .cache/apache-kafka"
    exit 0
fi
for tool in mvn java; do
    if ! command -v "$tool" > /dev/null; then
        echo "apache: skipped, there is no $tool (set KAFKA_HOME to use an installation)"
        exit 0
    fi
done

# A fresh folder each time, so that jars of two versions never mix.
rm -rf "$home"
mkdir -p "$home"
if ! timeout 600 mvn --batch-mode --quiet --file "$here/pom.xml" \
    dependency:copy-dependencies -DincludeScope=runtime \
    "-DoutputDirectory=$home/libs" > "$home/maven.log" 2>&1; then
    echo "apache: skipped, Maven could not bring it; the end of .cache/apache-kafka/maven.log:"
    tail -n 5 "$home/maven.log"
    exit 0
fi
touch "$home/complete"
echo "apache: ready in .cache/apache-kafka"
