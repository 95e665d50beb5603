"""What takes long: results that are written as they come, gone on from, and true of one code only.

Used by everything that runs for hours: `make soak`, `make simulate RESULTS=...`, `make mutants`,
`make mutate`. Owns the file of results, the fingerprint that says which code they hold for, and the
copy of the code that a long run works on. What is run, and what a row says, is each one's own.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import holdfast

Row = dict[str, Any]

SOURCE: Final = Path(holdfast.__file__).parent.parent  # in a long run that of its copy
COPIES: Final = Path("runs") / "code"
_COPY: Final = "HOLDFAST_CODE_COPY"  # set where the program runs on one
COMMIT: Final = "HOLDFAST_CODE_COMMIT"  # what it was made of
LEFT_OUT: Final = ("__pycache__", "*.pyc", "*.egg-info")
# A compiler's output: a copy of the code needs it, and it differs from machine to machine.
_COMPILED: Final = ("*.so", "*.pyd")

# Folders of src that a proof exercises: an edit in one of them ends what its results are worth.
NODE: Final = (
    "holdfast/config",
    "holdfast/core",
    "holdfast/log",
    "holdfast/node",
    "holdfast/runtime",
    "holdfast/wire",
)
SIMULATOR: Final = (*NODE, "holdfast/clients", "holdfast/judge", "holdfast/testing")
_TREES: Final = "holdfast/lab/pipelines/process_trees.py"  # starvation looks at them in any run
LAB: Final = (
    *NODE,
    "holdfast/clients",
    "holdfast/cluster",
    "holdfast/judge",
    "holdfast/lab",
    _TREES,
)
# How Spark reads a log, which no node and no simulator uses: our own client, records into columns.
_READING: Final = (
    "holdfast/clients/log_offsets.py",
    "holdfast/wire/walker/compiled_columns.c",
    "holdfast/wire/walker/python_columns.py",
    "holdfast/wire/walker/record_columns.py",
)
PIPELINE: Final = (*LAB, "holdfast/pipelines", "pyspark_holdfast", *_READING)
# Scenarios of queries: nothing else proves anything by these folders, so they are named here.
PIPELINE_SCENARIOS: Final = (
    *PIPELINE,
    "holdfast/lab/pipelines",
    "holdfast/lab/scenarios/pipelines",
)
# Scenarios in a network of its own, as above.
_NETWORK: Final = (
    "holdfast/cluster/network",
    "holdfast/cluster/networked.py",
    "holdfast/lab/scenarios/networks",
    "holdfast/lab/steps/balancer.py",
    "holdfast/lab/steps/cut_off.py",
    "holdfast/lab/steps/replay_plan.py",
    "holdfast/lab/steps/sides.py",
    "holdfast/lab/steps/storm_plan.py",
)
NETWORK_SCENARIOS: Final = (*LAB, *_NETWORK)
# Scenarios on clusters that are not the lab's own, as above.
_ELSEWHERE: Final = (
    "holdfast/cluster/elsewhere",
    "holdfast/lab/elsewhere",
    "holdfast/lab/soak/elsewhere_campaigns.py",
)
ELSEWHERE_SCENARIOS: Final = (
    *LAB,
    *_ELSEWHERE,
    *_NETWORK,  # the one that plays somebody else's has links that its commands cut
    "holdfast/clients/group_changes.py",
    "holdfast/clients/log_offsets.py",
)
# Kills of a Spark driver alone: what brokers keep meanwhile is proven elsewhere.
DRIVER: Final = (
    "holdfast/pipelines",
    "pyspark_holdfast",
    "holdfast/clients/blocking_driver.py",
    "holdfast/lab/soak/stateful_campaigns.py",
    "holdfast/lab/soak/stateful_truth.py",
    "holdfast/wire",
    *_READING,
)
# Kills around the sinks of `write`: as above, what brokers keep meanwhile is proven elsewhere.
_SINK_KILLS: Final = tuple(
    f"holdfast/lab/soak/{name}.py"
    for name in (
        "held_life",
        "latest_campaigns",
        "redis_server",
        "sink_campaigns",
        "sink_endings",
        "sink_kinds",
        "sink_trial",
        "sink_truth",
    )
)
_KILLED: Final = (
    "holdfast/lab/pipelines/driver_words.py",
    "holdfast/lab/pipelines/postgresql_server.py",
    _TREES,
)
SINK_KILLS: Final = (*DRIVER, "holdfast/lab/postgresql.py", *_SINK_KILLS, *_KILLED)

# In the folders above, and not in use by what is proven: nothing else there imports these, so no
# proof exercises them, and none ends when they change, unless it names them itself. A name goes
# from here when a node first uses it.
UNEXERCISED: Final[tuple[str, ...]] = (
    "holdfast/lab/background.py",  # the files and the counting
    "holdfast/lab/soak/exercised.py",
    *_SINK_KILLS,
    *_NETWORK,  # loaded for a cluster with a network of its own only
    "holdfast/runtime/settable_clock.py",  # for a node whose clock a storm sets
    "holdfast/cluster/apache.py",  # and these for one of Apache Kafka's nodes
    "holdfast/cluster/zookeeper.py",
    *_ELSEWHERE,  # for a cluster that is not the lab's own
    "holdfast/lab/matrix.py",  # the pages of `prove --all`, made of what proofs have written
    "holdfast/lab/report/templates/matrix.html",
    "holdfast/lab/report/templates/beside.html",
    "holdfast/lab/report/templates/side_by_side.css",
    "holdfast/lab/report/templates/side_by_side.html",
    "holdfast/lab/pipelines",
    "holdfast/lab/scenarios/pipelines",
    "holdfast/clients/group_changes.py",
    "holdfast/clients/group_configs.py",
    "holdfast/clients/group_lags.py",
    "holdfast/clients/group_member/light_client.py",
    "holdfast/clients/group_member/light_connection.py",
    "holdfast/clients/group_member/light_crowd.py",
    "holdfast/clients/group_member/light_offsets.py",
    "holdfast/clients/log_offsets.py",
    "holdfast/clients/offset_resets.py",
    "holdfast/clients/partition_inspection.py",
    "holdfast/clients/replica_statements.py",
    "holdfast/wire/walker/compiled_columns.c",
    "holdfast/wire/walker/compiled_columns.pyi",
    "holdfast/wire/walker/python_columns.py",
    "holdfast/wire/walker/record_columns.py",
)


class ResultsError(Exception):
    """A file of results can't be used; the text says why."""


def fingerprint(
    paths: Iterable[str], source: Path = SOURCE, without: Iterable[str] = UNEXERCISED
) -> str:
    """Return a name for what is in these folders and files of `source` now.

    Every name and every byte counts, but for what is compiled and installed, and for `without`
    where `paths` do not name that itself: one code has one name on every machine.
    """
    digest = hashlib.sha256()
    for name in files_of(paths, source, without):
        content = hashlib.sha256((source / name).read_bytes()).hexdigest()
        digest.update(f"{name} {content}\n".encode())
    return digest.hexdigest()[:16]


def files_of(
    paths: Iterable[str], source: Path = SOURCE, without: Iterable[str] = UNEXERCISED
) -> list[str]:
    """Return the names of the files that `fingerprint` is of, below `source`."""
    named = set(paths)
    left_out = {source / path for path in without if path not in named}
    found: dict[str, None] = {}  # once each, also where folders lie in one another
    for path in sorted(source / path for path in named):
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            name = file.relative_to(source)
            if file.is_dir() or any(
                fnmatch(part, one) for part in name.parts for one in (*LEFT_OUT, *_COMPILED)
            ):
                continue
            if file == path or left_out.isdisjoint((file, *file.parents)):
                found[str(name)] = None
    return list(found)


def written(files: Iterable[str], source: Path = SOURCE) -> dict[str, tuple[int, str]]:
    """Return of each of these files, below `source`, when it was written and what is in it.

    Two such answers tell what was written between them, also where all is as before again: what
    ran meanwhile may have read the other code. A file that is not there is left out.
    """
    found = {}
    for name in files:
        file = source / name
        with suppress(FileNotFoundError):
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            found[name] = file.stat().st_mtime_ns, content
    return found


@cache
def commit() -> str | None:
    """Return the commit of the code, "+" behind it when files differ; None without git."""
    if COMMIT in os.environ:
        return os.environ[COMMIT] or None

    def git(*words: str) -> str:
        command = ["git", "-C", str(SOURCE), *words]
        found = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
        return found.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


class Results:
    """A file of JSON lines, one a finished run, appended as they come by one process at a time.

    `rows` are those that hold for this code, and that `counts` takes where it is given; of the
    others only the count is known. A last line that was cut off counts for nothing, and is taken
    away. A row is refused once the code has
    changed, for then nobody knows what made it.
    """

    def __init__(
        self,
        path: Path | None,
        paths: Sequence[str],
        source: Path = SOURCE,
        *,
        counts: Callable[[Row], bool] = lambda _row: True,
    ) -> None:
        self._paths, self._source, self._counts = paths, source, counts
        self.code = fingerprint(paths, source)
        self.rows: list[Row] = []
        self.others = 0  # of other code
        self.passed_over = 0  # of this code
        self._file: int | None = None
        if path is not None:
            self._open(path)

    def _open(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise ResultsError(f"{path}: another process is writing to it") from None
        except OSError as error:
            raise ResultsError(f"{path}: {error.strerror}") from None
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            os.ftruncate(self._file, len(whole))
        for line in whole.splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if not isinstance(row, dict) or "code" not in row:
                self.close()
                raise ResultsError(f"{path}: no result: {line[:80].decode(errors='replace')}")
            if row["code"] == self.code:
                self._take(row)
            else:
                self.others += 1

    def _take(self, row: Row) -> None:
        if self._counts(row):
            self.rows.append(row)
        else:
            self.passed_over += 1

    def add(self, row: Row) -> None:
        """Keep a row. ResultsError when the code is not that any more which the rows are for."""
        if fingerprint(self._paths, self._source) != self.code:
            raise ResultsError("the code was changed while this ran: what it found is of neither")
        at = f"{datetime.now(tz=UTC):%Y-%m-%dT%H:%M:%SZ}"
        whole = {**row, "at": at, "code": self.code, "commit": commit()}
        self._take(whole)
        if self._file is not None:
            os.write(self._file, json.dumps(whole).encode() + b"\n")

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)  # and with it goes the lock
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()


def run_on_copy(module: str, arguments: Sequence[str]) -> None:
    """Start this program anew on a copy of the code, so that edits can go on beside it.

    Returns in the new program at once. Copies lie in runs/code under the code's name, and serve
    every run of that code.
    """
    if _COPY in os.environ:
        return
    copy = copied(COPIES)
    path = os.pathsep.join([str(copy), *filter(None, [os.environ.get("PYTHONPATH")])])
    stamp = {_COPY: str(copy), COMMIT: commit() or ""}
    environment = {**os.environ, "PYTHONPATH": path, **stamp}
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-m", module, *arguments], environment)  # noqa: S606


def copied(folder: Path, source: Path = SOURCE) -> Path:
    """Return a copy of all of src in `folder`, made unless it is there."""
    copy = folder.absolute() / fingerprint(["."], source, without=())
    if not copy.exists():
        unfinished = copy.with_name(f"{copy.name}.{os.getpid()}")
        shutil.copytree(source, unfinished, ignore=shutil.ignore_patterns(*LEFT_OUT))
        try:
            unfinished.rename(copy)
        except OSError:  # another process was quicker
            shutil.rmtree(unfinished)
    return copy
