"""`holdfast metadata-quorum` prints what Apache Kafka's own tool prints of the same cluster."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from holdfast import cli

pytestmark = [pytest.mark.apache, pytest.mark.slow]
TOOL = "org.apache.kafka.tools.MetadataQuorumCommand"


@pytest.mark.parametrize("what", ["--status", "--replication"])
def test_the_text_is_the_same(
    kafka_tools: Path, apache_kafka: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: scripts that read one read the other. Method: both, numbers that move left out."""
    flags = ["--bootstrap-server", apache_kafka, "describe", what]
    theirs = subprocess.run(
        [kafka_tools, "class", TOOL, *flags], capture_output=True, text=True, check=True
    ).stdout
    capsys.readouterr()
    assert cli.run(["metadata-quorum", *flags]) == 0
    assert _still(capsys.readouterr().out) == _still(theirs)


def _still(text: str) -> str:
    """Without offsets and times, which move on between two looks."""
    return re.sub(r"(HighWatermark: +|\t)\d+", r"\1N", text)
