"""What a member of a group is told: its options, and what librdkafka makes of them."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from holdfast.clients.workload.command import client_parser
from holdfast.clients.workload.member_commits import AUTO_COMMIT_MS, BACKOFF_MS
from holdfast.clients.workload.member_sink import MODES

COOPERATIVE: Final = "cooperative-sticky"
ABOUT: Final = "A consumer in a group that writes down what it does."


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    bootstrap: str
    topic: str
    history: Path
    process: str
    group: str
    protocol: str = "classic"
    assignor: str = ""  # empty: the client's own, or the broker's
    instance: str | None = None
    commits: str = "after"
    commit_every: int = 1  # batches
    careless: bool = False  # gives partitions up without committing what it has done
    batch: int = 10
    linger_ms: float = 0.0  # to wait for a batch to be full
    work_ms: float = 0.0
    pause: bool = False  # works with its partitions paused, and polls meanwhile
    reset: str = "earliest"
    hold: Path | None = None
    sink: Path | None = None  # where results go
    sink_mode: str = "plain"
    session_ms: int = 6000
    max_poll_ms: int = 10_000
    config: tuple[tuple[str, str], ...] = ()

    @property
    def is_incremental(self) -> bool:
        """Whether rebalances tell what changes, and not all that there is."""
        return self.protocol == "consumer" or self.assignor == COOPERATIVE

    def client_config(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "client.id": self.process,
            "group.id": self.group,
            "group.protocol": self.protocol,
            "enable.auto.commit": self.commits == "automatic",
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",  # it is asked for, and written down
            "max.poll.interval.ms": self.max_poll_ms,
            "retry.backoff.ms": BACKOFF_MS,
            "fetch.wait.max.ms": 100,
            "topic.metadata.refresh.interval.ms": 1000,
        }
        if self.commits == "automatic":
            values["auto.commit.interval.ms"] = AUTO_COMMIT_MS
        if self.instance is not None:
            values["group.instance.id"] = self.instance
        if self.protocol == "classic":
            values["session.timeout.ms"] = self.session_ms
            values["heartbeat.interval.ms"] = max(100, self.session_ms // 10)
        if self.assignor:
            name = "group.remote.assignor"
            if self.protocol == "classic":
                name = "partition.assignment.strategy"
            values[name] = self.assignor
        values.update(self.config)
        return values


def make_parser() -> argparse.ArgumentParser:
    parser = client_parser("verifiable_member", ABOUT, process="member")
    add = parser.add_argument
    add("--group", required=True)
    add("--protocol", choices=["classic", "consumer"], default="classic")
    add("--assignor", default="", help="the client's (classic) or the broker's (consumer)")
    add("--instance", help="group.instance.id")
    add("--commits", choices=["after", "before", "automatic", "never"], default="after")
    add("--commit-every", type=int, default=1, help="batches")
    add("--careless", action="store_true", help="commits nothing when it gives partitions up")
    add("--batch", type=int, default=10, help="records that are processed between two commits")
    add("--linger-ms", type=float, default=0.0, help="to wait for a batch to be full")
    add("--work-ms", type=float, default=0.0, help="that one record takes")
    add("--pause", action="store_true", help="poll while it works, with partitions paused")
    add("--reset", choices=["earliest", "latest"], default="earliest")
    add("--hold", type=Path, help="while this file is there, stand still behind so many records")
    add("--sink", type=Path, help="a table that results are put into")
    add("--sink-mode", choices=MODES, default="plain")
    add("--session-ms", type=int, default=6000)
    add("--max-poll-ms", type=int, default=10_000)
    add("--config", action="append", default=[], metavar="KEY=VALUE", help="for librdkafka")
    return parser


def parse(arguments: list[str]) -> Options:
    found = vars(make_parser().parse_args(arguments))
    pairs = (item.partition("=") for item in found["config"])
    return Options(
        bootstrap=found["bootstrap_server"],
        config=tuple((key, value) for key, _, value in pairs),
        **{
            each.name: found[each.name]
            for each in fields(Options)
            if each.name not in {"bootstrap", "config"}
        },
    )
