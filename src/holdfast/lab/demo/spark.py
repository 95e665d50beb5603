"""The demo's Spark driver: a process of its own that tells what it does as JSON lines.

Owns how a driver is started, and how its words are followed. It knows nothing of the order of the
steps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.lab.demo.database import PASSWORD
from holdfast.lab.demo.demo_plan import DemoPlan, Places
from holdfast.lab.parameters import LabError
from holdfast.lab.workload_processes import Lines, Process

MODULES = {"payments": "holdfast.pipelines.ledger", "lines": "holdfast.pipelines.lines"}


class Words:
    """What one driver has told, as of the last `poll`; each event has its moment, `at_ms`."""

    def __init__(self, path: Path) -> None:
        self._lines = Lines(path)
        self.last: dict[str, dict[str, Any]] = {}  # of each kind
        self.commits: list[tuple[float, int]] = []  # (monotonic ms, rows)
        self.rows = 0

    def poll(self) -> Words:
        """Take in what was told since; returns itself."""
        for line in self._lines.new():
            try:
                event = json.loads(line)
            except ValueError:
                continue  # a library's own words
            if not isinstance(event, dict) or "event" not in event:
                continue
            self.last[event["event"]] = event
            if event["event"] == "committed":
                self.rows += event["rows"]
                self.commits.append((event["at_ms"], event["rows"]))
        return self


class SparkDriver(Process):
    """A driver with the plan's recipe, from its start on."""

    def __init__(
        self,
        plan: DemoPlan,
        places: Places,
        bootstrap: str,
        number: int,
        *options: str,
        environment: Mapping[str, str],
    ) -> None:
        """`options` are the driver's own, besides; `environment` is laid over ours."""
        arguments = [
            *("--bootstrap-server", bootstrap),
            *("--topic", plan.topic),
            *("--database", places.named(plan)),
            *("--checkpoint", str(places.checkpoint)),
            *("--query", plan.query),
            *("--hold", str(places.hold)),
            # Spark takes all it can get, and brokers that share its cores must still send
            # heartbeats in time.
            *("--nice", "5"),
            *options,
        ]
        if plan.kind == "payments":
            arguments += ["--accounts", str(plan.accounts), "--opening", str(plan.opening)]
        if places.password is not None:
            environment = {**environment, PASSWORD: places.password}
        said = places.words(number)
        self.words = Words(said)
        super().__init__(said.stem, MODULES[plan.kind], arguments, said, environment)

    def heard(self, event: str) -> bool:
        return event in self.words.poll().last

    @property
    def rows(self) -> int:
        """How many rows it has committed, as it says itself."""
        return self.words.poll().rows

    def last_words(self) -> str:
        failed = self.words.poll().last.get("failed", {}).get("error")
        return str(failed) if failed else super().last_words()

    @property
    def held(self) -> dict[str, Any] | None:
        """What it says while it is held where a batch with rows is in the table; None: it isn't."""
        held = self.words.poll().last.get("held")
        return held if held is not None and held["rows"] else None

    @property
    def ended_by_itself(self) -> bool:
        """Whether it ended after its query had begun, and nobody had asked it to."""
        try:
            self.raise_if_dead()
        except LabError:
            return self.heard("started")
        return False
