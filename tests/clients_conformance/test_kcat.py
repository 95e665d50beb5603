"""Debian's kcat, unmodified, where it is installed. Topics come by auto-creation."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from tests.clients_conformance.test_confluent import wait_until_known

from holdfast.clients.blocking_driver import Driver
from holdfast.cluster.processes import wait_until
from holdfast.wire.administration import create_topic

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


@pytest.mark.slow
def test_members_of_a_group_read_by_turns(target: Target, new_topic: NewTopicName) -> None:
    """Goal: -G commits what it printed. Method: three in turn, and nothing is left to the last."""
    topic = new_topic()
    kcat(target, "-P", "-t", topic, stdin="a\nb\nc\nd\ne\n")
    group = ("-G", topic, "-X", "auto.offset.reset=earliest", "-q", "-u", "-f", "%s@%o\\n")
    assert kcat(target, *group, "-c", "3", topic) == "a@0\nb@1\nc@2\n"
    assert kcat(target, *group, "-e", topic) == "d@3\ne@4\n"
    assert kcat(target, *group, "-e", topic) == ""


class Reader:
    """A kcat in a group, and what it was given last."""

    def __init__(self, target: Target, topic: str) -> None:
        words = [
            "kcat",
            "-b",
            target.bootstrap,
            "-G",
            topic,
            "-X",
            "session.timeout.ms=6000",
            topic,
        ]
        self.process = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self.owned: set[int] = set()
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            _, is_assigned, given = line.partition("): assigned: ")
            if is_assigned:
                self.owned = {int(part) for part in re.findall(r"\[(\d+)\]", given)}
            elif "): revoked: " in line:
                self.owned = set()

    def end(self, how: int) -> None:
        self.process.send_signal(how)
        self.process.wait(BOUND_S)
        self._thread.join(BOUND_S)
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.mark.slow
def test_members_share_and_who_is_killed_is_replaced(
    target: Target, new_topic: NewTopicName
) -> None:
    """Goal: a group of kcats is balanced. Method: two, as each says itself; one gets SIGKILL."""
    topic = new_topic()
    with Driver(target.bootstrap) as driver:
        asked = create_topic(topic, partitions=4, replication_factor=1)
        driver.perform(asked, node="controller")
    wait_until_known(target, topic)  # who does not find it looks again minutes later
    first, second = readers = Reader(target, topic), Reader(target, topic)
    try:
        wait_until(
            lambda: len(first.owned) == len(second.owned) == 2 and not first.owned & second.owned,
            timeout_s=BOUND_S,
            what="two of four each",
        )
        first.end(signal.SIGKILL)
        wait_until(lambda: len(second.owned) == 4, timeout_s=BOUND_S, what="all four")
        second.end(signal.SIGTERM)
        assert second.process.returncode == 0
    finally:
        for each in readers:
            each.end(signal.SIGKILL)
