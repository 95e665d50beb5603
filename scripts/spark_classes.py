"""Write down which classes a driver of Spark loads, ready to be mapped: Java's class data sharing.

`make test` does it once for each `.venv`; tests/conftest.py gives the archive to every JVM of the
tests, which then starts with a third less work, and so does `make soak`, by what `--exports` prints
for a shell. Without an archive, or with one that no longer fits (Java looks at that itself), they
are slower and nothing else.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CONF = Path(__file__).resolve().parent.parent / "tests" / "spark_conf"
FOLDER = Path(sys.prefix) / "spark-classes"
ARCHIVE = FOLDER / "classes.jsa"
SETTINGS = FOLDER / "tests.properties"  # there once the archive is
EVENTS = 50
TIMEOUT_S = 300


def main() -> int:
    if sys.argv[1:] == ["--exports"]:
        given = {} if "SPARK_CONF_DIR" in os.environ else for_tests()
        for name, value in {**given, "OPENBLAS_NUM_THREADS": "1"}.items():
            sys.stdout.write(f"export {name}={shlex.quote(value)}\n")
        return 0
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    making = FOLDER / "making.properties"
    making.write_text(settings(f"-XX:ArchiveClassesAtExit={ARCHIVE}"))
    with tempfile.TemporaryDirectory() as folder:
        drive(Path(folder), making)
    making.unlink()
    if not ARCHIVE.exists():
        sys.stderr.write("Java wrote no archive of classes: Spark's tests take a little longer\n")
        return 1
    SETTINGS.write_text(settings(f"-XX:SharedArchiveFile={ARCHIVE}"))
    return 0


def settings(option: str) -> str:
    """Return the settings of tests, and a further option of Java.

    A driver speaks JSON on standard output, where Java would complain about an archive.
    """
    lines = (CONF / "spark-defaults.conf").read_text().splitlines()
    quiet = "-Xlog:disable -Xlog:all=error:stderr"
    return "".join(
        f"{line} {option} {quiet}\n" if "extraJavaOptions" in line else f"{line}\n"
        for line in lines
    )


def drive(folder: Path, properties: Path) -> None:
    """Let a driver read all of a topic through a query with state, and wait for its JVM to end."""
    # Here: every worker of a test run imports this module for its names.
    from confluent_kafka import Producer  # noqa: PLC0415
    from confluent_kafka.admin import AdminClient, NewTopic  # noqa: PLC0415

    from holdfast.cluster import LocalCluster  # noqa: PLC0415

    with LocalCluster.create(folder / "cluster", brokers=1, port=0) as cluster:
        cluster.start()
        bootstrap = cluster.bootstrap_servers
        # Its records are of 1970, and on a slow machine retention would look before Spark does.
        config = {"min.insync.replicas": "1", "retention.ms": "-1"}
        topic = NewTopic("events", 2, 1, config=config)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([topic])["events"].result(30)
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(EVENTS):
            value = json.dumps({"kind": "left", "id": number, "amount": 1})
            producer.produce("events", value, "key", number % 2, timestamp=1 + 1000 * number)
        producer.flush(30)
        options = [
            *("--bootstrap-server", bootstrap, "--topic", "events", "--query", "windows"),
            *("--database", f"sqlite:///{folder}/{{query}}.db", "--once"),
            *("--checkpoint", str(folder / "checkpoint")),
        ]
        # Standard error is the caller's, who keeps it. The JVM holds its output open, too.
        subprocess.run(
            [sys.executable, "-m", "holdfast.pipelines.stateful", *options],
            env={**os.environ, **environment(properties)},
            stdout=subprocess.PIPE,
            timeout=TIMEOUT_S,
            check=True,
        )


def environment(properties: Path) -> dict[str, str]:
    """Return what makes Spark take these settings: with a folder among its classes, where it looks
    for them by itself, Java takes no archive.
    """
    return {
        "PYSPARK_SUBMIT_ARGS": f"--properties-file {properties} pyspark-shell",
        "SPARK_CONF_DIR": str(FOLDER / "none"),
    }


def for_tests() -> dict[str, str]:
    """Return the environment of tests, with the archive of this very place or without."""
    if SETTINGS.exists() and str(ARCHIVE) in SETTINGS.read_text():
        return environment(SETTINGS)
    return {"SPARK_CONF_DIR": str(CONF)}


if __name__ == "__main__":
    sys.exit(main())
