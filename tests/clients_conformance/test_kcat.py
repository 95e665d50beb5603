"""Debian's kcat, unmodified, where it is installed. Topics come by auto-creation."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.clients_conformance.conftest import Target

pytestmark = [
    pytest.mark.kcat,
    pytest.mark.skipif(shutil.which("kcat") is None, reason="Debian's kcat is not installed"),
]
NewTopicName = Callable[[], str]
BOUND_S = 30.0


def kcat(target: Target, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        ["kcat", "-b", target.bootstrap, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_messages_come_back(target: Target, new_topic: NewTopicName, codec: str) -> None:
    """Goal: kcat produces to a new topic and reads it back. Method: keys and values, per codec."""
    topic = new_topic()
    compression = [] if codec == "none" else ["-z", codec]
    kcat(target, "-P", "-t", topic, "-K", ":", *compression, stdin="a:1\nb:2\nc:3\n")
    read = kcat(target, "-C", "-t", topic, "-e", "-q", "-f", "%k=%s@%o\\n")
    assert read == "a=1@0\nb=2@1\nc=3@2\n"


@pytest.mark.slow
def test_it_starts_at_an_offset_and_at_the_end(target: Target, new_topic: NewTopicName) -> None:
    """Goal: -o works. Method: an absolute offset, and one from the end."""
    topic = new_topic()
    kcat(target, "-P", "-t", topic, stdin="a\nb\nc\n")
    assert kcat(target, "-C", "-t", topic, "-p", "0", "-o", "1", "-e", "-q") == "b\nc\n"
    assert kcat(target, "-C", "-t", topic, "-p", "0", "-o", "-1", "-e", "-q") == "c\n"
    assert kcat(target, "-C", "-t", topic, "-o", "s@1", "-e", "-q") == "a\nb\nc\n"


@pytest.mark.slow
def test_metadata(target: Target, new_topic: NewTopicName) -> None:
    """Goal: -L shows all brokers and the topic. Method: its JSON."""
    topic = new_topic()
    kcat(target, "-P", "-t", topic, stdin="a\n")
    listed = json.loads(kcat(target, "-L", "-J"))
    assert len(listed["brokers"]) == target.brokers
    assert topic in [found["topic"] for found in listed["topics"]]
