"""What one demo run is: its settings, kept in its directory, so that it can be checked again.

Owns what the manifest of a demo says, and the names of everything else in the directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import msgspec

from holdfast.judge.groups.verdict import Commits
from holdfast.lab.journal import HISTORY, MANIFEST, FolderError, write_manifest
from holdfast.lab.parameters import LabError, Parameters

KIND = "demo"
PARTITIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPlan:
    kind: Literal["payments", "lines"]
    events: int  # to be sent: payments, or well-formed lines
    rate: float
    topic: str
    query: str  # the name under which the tables know the pipeline
    partitions: int = PARTITIONS
    seed: int = 0
    accounts: int = 20
    opening: int = 10_000_000  # hundredths; more than chance takes away
    input: str | None = None
    key: str | None = None
    # SQLAlchemy's URL without a password; None: SQLite in the run's directory
    database: str | None = None
    malformed: int = 0
    sha256: str = ""  # over number and text of the well-formed lines

    @property
    def parameters(self) -> Parameters:
        """The settings of its cluster and clients."""
        return Parameters(partitions=self.partitions, rate=self.rate, commits=Commits.AFTER)

    def write(self, directory: Path, command: str) -> None:
        write_manifest(directory, KIND, plan=asdict(self), command=command)

    @classmethod
    def read(cls, directory: Path, manifest: Mapping[str, Any]) -> Self:
        """Read a run's settings back. FolderError: these are none."""
        try:
            plan = msgspec.convert(asdict(cls(**manifest["plan"])), cls)
            makes_sense = plan.kind in {"payments", "lines"} and plan.events > 0
            _ = plan.parameters
        except (KeyError, TypeError, ValueError, LabError) as error:
            raise FolderError(f"{directory / MANIFEST} is damaged: {error!r}.") from error
        if not makes_sense:
            raise FolderError(f"{directory / MANIFEST} is damaged: these are no events of a demo.")
        return plan


@dataclass(frozen=True, slots=True)
class Places:
    """Where things are in a run's directory, and what its own database must be told."""

    directory: Path
    password: str | None = field(default=None, repr=False)

    @property
    def history(self) -> Path:
        return self.directory / HISTORY

    @property
    def manifest(self) -> Path:
        return self.directory / MANIFEST

    @property
    def checkpoint(self) -> Path:
        return self.directory / "checkpoint"

    @property
    def table(self) -> Path:
        return self.directory / "table.db"

    def named(self, plan: DemoPlan) -> str:
        """Return SQLAlchemy's URL of the tables, as anybody may see it.

        A directory may have been moved since.
        """
        return plan.database or f"sqlite:///{self.table}"

    def database(self, plan: DemoPlan) -> str:
        """Return the URL with which this process connects."""
        if self.password is None:
            return self.named(plan)
        from holdfast.lab.demo.database import joined  # noqa: PLC0415 - SQLAlchemy

        return joined(self.named(plan), self.password)

    @property
    def malformed(self) -> Path:
        return self.directory / "malformed.jsonl"

    @property
    def report(self) -> Path:
        return self.directory / "report.html"

    @property
    def hold(self) -> Path:
        """While this file is there, the Spark driver stays where it has committed."""
        return self.directory / "hold"

    def words(self, number: int) -> Path:
        """What Spark driver `number` has told, one JSON line an event."""
        return self.directory / f"spark-{number}.jsonl"
