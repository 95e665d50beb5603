"""What one demo run is: its settings, kept in its directory, so that it can be checked again.

Owns `demo.json` and the names of everything else in the directory.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

FORMAT = 1
PARTITIONS = 3


class DemoError(RuntimeError):
    """The demo could not be run, or a directory holds none. One clear sentence."""


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
    database: str | None = None  # SQLAlchemy's URL; None: SQLite in the run's directory
    malformed: int = 0
    sha256: str = ""  # over number and text of the well-formed lines

    def write(self, directory: Path) -> None:
        values = {"format": FORMAT, **asdict(self)}
        (directory / "demo.json").write_text(json.dumps(values, indent=2) + "\n")

    @classmethod
    def read(cls, directory: Path) -> DemoPlan:
        """Read a run's settings back. DemoError: the directory holds no run."""
        path = directory / "demo.json"
        try:
            values = json.loads(path.read_bytes())
            if values.pop("format") != FORMAT:
                raise DemoError(f"{path} was written by another version.")
            return cls(**values)
        except OSError as error:
            raise DemoError(f"{path}: {error.strerror}; no demo ran in {directory}.") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DemoError(f"{path} is not a demo's settings: {error!r}.") from error


@dataclass(frozen=True, slots=True)
class Places:
    """Where things are in a run's directory."""

    directory: Path

    @property
    def cluster(self) -> Path:
        return self.directory / "cluster"

    @property
    def history(self) -> Path:
        return self.directory / "history"

    @property
    def checkpoint(self) -> Path:
        return self.directory / "checkpoint"

    @property
    def table(self) -> Path:
        return self.directory / "table.db"

    def database(self, plan: DemoPlan) -> str:
        """Return SQLAlchemy's URL of the tables. A directory may have been moved since."""
        return plan.database or f"sqlite:///{self.table}"

    @property
    def malformed(self) -> Path:
        return self.directory / "malformed.jsonl"

    @property
    def report(self) -> Path:
        return self.directory / "report.html"

    @property
    def driver_log(self) -> Path:
        return self.directory / "spark.log"

    @property
    def producer_log(self) -> Path:
        return self.directory / "producer.log"
