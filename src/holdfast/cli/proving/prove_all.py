"""`holdfast prove --all`: every scenario on every engine, one page; goes on where it ended."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import platform
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import confluent_kafka

from holdfast.cli.proving import prove_aside as aside
from holdfast.cluster import apache
from holdfast.cluster.ending import Interrupt
from holdfast.cluster.layout import EMBEDDED, OLDER, ClusterError
from holdfast.cluster.network import possible
from holdfast.lab import background, keeping, matrix
from holdfast.lab.journal import Exit
from holdfast.lab.matrix import Grounds, Row
from holdfast.lab.outcome import Outcome
from holdfast.lab.parameters import LabError
from holdfast.lab.prove import CRASH, crashed, prove
from holdfast.lab.scenario import NETWORKS, PIPELINES, SCENARIOS, WITH_ZOOKEEPER, load_scenario
from holdfast.lab.soak.campaign import network_of
from holdfast.lab.soak.exercised import by_scenario

SPARK = "pyspark"
JARS = "kafka*.jar"  # of an Apache Kafka, without what it takes from others
# What our nodes alone run: the lab and its clients speak the protocol by `wire`, and read `config`.
OURS_ALONE = ("core", "log", "node", "runtime")
Place = tuple[str, str]  # of a row: an engine and a scenario


class CodeChangedError(LabError):
    """The code was changed while the command ran: what it would show is of neither code."""


class Begun:
    """The code that the command began with, which its verdicts are of, and no other.

    What Python has loaded stays that code. Nodes that are started, and modules that are loaded
    later, are of what lies on the disk by then: of a run amid a change nobody knows which it was.
    """

    def __init__(
        self, directory: Path, runs: Iterable[Place], profile: str = matrix.PROFILE
    ) -> None:
        self._directory, self.profile = directory, profile
        self._files = {run: files_of(*run) for run in runs}
        # First of all, so that what is changed from here on is seen.
        self._written = background.written({f for files in self._files.values() for f in files})
        self.asked = {
            run: aside.Asked(directory, *run, code_of(*run), profile) for run in self._files
        }
        self.versions = {engine: version_of(engine) for engine, _ in self._files}

    def refuse_changed(self, engine: str, scenario: str) -> None:
        """CodeChangedError: what this run takes was written since. ClusterError: no engine."""
        files = self._files[engine, scenario]
        now = background.written(files)
        changed = [file for file in files if now.get(file) != self._written.get(file)]
        if not changed and code_of(engine, scenario) != self.asked[engine, scenario].code:
            changed = ["the Apache Kafka"]  # no file of ours, and what else a name is of
        if changed:
            others = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            raise CodeChangedError(
                f"{engine} {scenario}: {changed[0]}{others} was changed while `prove --all` ran, "
                "so that its verdict would be of neither code, and all stops here. Verdicts of "
                "before stand for the code that they are of. The same command with --output "
                f"{shlex.quote(str(self._directory))} goes on with the code that is there now."
            )


class Known:
    """What each run that is asked for has come to, as far as it was ever known.

    What is broken stays known where its folder can't be read any more.
    """

    def __init__(self, asked: Mapping[Place, aside.Asked]) -> None:
        self._asked = asked
        self.done: dict[Place, Row] = {}
        self._broken: dict[Place, Row] = {}  # that is not done, or was put aside

    def broken(self, say: Callable[[str], None]) -> list[Row]:
        """Return what is broken of what is not done, also under another profile. OSError."""
        found = []
        for run, asked in self._asked.items():
            row = None if run in self.done else aside.broken_in(asked, say)
            if row is not None:
                found.append(row)
                if asked.counts(asked.folder):
                    self._broken[run] = row
        return found

    def rows(self) -> list[Row]:
        """Return all rows, with what was put aside. OSError."""
        found = {run: aside.counted(it, self.done.get(run)) for run, it in self._asked.items()}
        rows = {run: row for run, row in found.items() if row is not None}
        self._broken |= {run: row for run, row in rows.items() if _is_broken(row)}
        return [*rows.values()]

    def rows_left(self) -> list[Row]:
        """Return all rows once something stops the command: as far as they can be read.

        What could not be put aside, and a run that was of two codes, count as well.
        """
        rows = []
        for run, asked in self._asked.items():
            row = self.done.get(run)
            try:
                if row is None:
                    found = aside.broken_in(asked, lambda _: None)
                    row = found if found is not None and asked.counts(asked.folder) else None
                row = aside.counted(asked, row)
            except OSError:
                row = row if _is_broken(row) else self._broken.get(run, row)
            if row is not None:
                rows.append(row)
        return rows


def _is_broken(row: Row | None) -> bool:
    return row is not None and Exit(row.exit) is Exit.BROKEN


class Made(NamedTuple):
    """What all of it has come to, and where its page is; None: it could not be written."""

    rows: list[Row]
    page: Path | None
    stopped: str | None = None  # why not all was run

    @property
    def status(self) -> Exit:
        """Broken is broken, whatever has stopped what was to follow."""
        found = matrix.worst(self.rows)
        return found if self.stopped is None or found is Exit.BROKEN else Exit.NOT_MADE


def prove_all(
    directory: Path,
    engines: Sequence[str],
    *,
    profile: str = matrix.PROFILE,
    control: bool,
    say: Callable[[str], None],
) -> Made:
    """Run what has not been decided in this folder yet; return all rows, and the page.

    A row that is there under another profile is made again. The page is written after each run.
    What stops it once rows are known is told beside them: code that was changed, an engine that
    has gone, a page or a folder that can't be written. OSError, LabError, ClusterError: they never
    were, for there is no such engine, or another one writes into the folder.
    """
    for engine in engines:
        if engine != EMBEDDED:  # said at once, not when all of ours are done
            apache.find_home(with_zookeeper=engine == OLDER)
    with matrix.held(directory):
        unplanned = left_out()
        for why, missing in unplanned.items():
            say(f"{len(missing)} scenarios are left out: {why}.")
        names = [name for name in SCENARIOS if not any(name in m for m in unplanned.values())]
        planned = {
            engine: [name for name in names if engine != OLDER or name in WITH_ZOOKEEPER]
            for engine in engines
        }
        runs = [(engine, name) for engine in planned for name in planned[engine]]
        begun = Begun(directory, runs, profile)
        breaks_links = any(name in NETWORKS for mine in planned.values() for name in mine)
        network = possible.look().how if breaks_links else None
        counts = {engine: len(mine) for engine, mine in planned.items()}
        known = Known(begun.asked)
        for place, asked in begun.asked.items():
            row, code = matrix.row_of(directory, *place), matrix.code_under(asked.code, profile)
            if row and matrix.is_done(row, code, network=network, with_controls=control):
                known.done[place] = row

        def write(rows: Sequence[Row]) -> Path:
            try:
                return matrix.write(directory, rows, counts, unplanned)
            except OSError as problem:
                page = directory / matrix.PAGE
                raise LabError(f"{page} can't be written: {problem}.") from problem

        try:
            _put_aside(directory, begun, known, say)
            page = write(known.rows())  # from here on the folder is known for its own
            for engine, name in begun.asked:
                mine = planned[engine]
                head = f"[{engine} {mine.index(name) + 1} of {len(mine)}] {name}"
                if (engine, name) in known.done:
                    say(f"{head}: {known.done[engine, name].word} already")
                    continue
                say(head)
                done = run(directory, engine, name, begun, control=control, say=say)
                known.done[engine, name] = done
                page = write(known.rows())
                Interrupt.refuse()
            return Made(known.rows(), page)
        except (LabError, ClusterError, OSError) as problem:
            rows = known.rows_left()
            try:
                return Made(rows, write(rows), str(problem))
            except LabError:  # as `problem` says, or on top of it
                return Made(rows, None, str(problem))


def _put_aside(directory: Path, begun: Begun, known: Known, say: Callable[[str], None]) -> None:
    """Put aside what is broken and has to be made again; say what lies there. OSError."""
    for row in known.broken(say):
        aside.put_aside(directory, row)
    for (engine, name), asked in begun.asked.items():
        for told in (aside.told(asked), aside.told_of_others(asked)):
            if told:
                say(f"{engine} {name}: {told}")


def files_of(engine: str, scenario: str) -> tuple[str, ...]:
    """Return the files of ours that a run takes, below src."""
    paths = by_scenario(scenario)
    if engine == EMBEDDED:
        return paths
    nodes = tuple(f"holdfast/{folder}/" for folder in OURS_ALONE)
    theirs = ("holdfast/cluster/apache.py", "holdfast/cluster/zookeeper.py")
    return (*(path for path in paths if not path.startswith(nodes)), *theirs)


def code_of(engine: str, scenario: str) -> str:
    """Return a name for all that a verdict is of. ClusterError: there is no such engine."""
    code, version = background.fingerprint(files_of(engine, scenario)), version_of(engine)
    return code if version is None else f"{code} of {version} {build_of(engine)}"


def version_of(engine: str) -> str | None:
    """Return which Apache Kafka an engine is; None: it is ours. ClusterError: there is none."""
    if engine == EMBEDDED:
        return None
    found = apache.version(apache.find_home(with_zookeeper=engine == OLDER))
    assert found is not None, "it was found"
    return ".".join(map(str, found))


def build_of(engine: str) -> str:
    """Return a name for an Apache Kafka's own jars: builds of one version have the same names."""
    folder = Path(apache.find_home(with_zookeeper=engine == OLDER)) / "libs"
    digest = hashlib.sha256()
    for jar in sorted(folder.glob(JARS)):
        with suppress(OSError), jar.open("rb") as file:  # one that has gone is another build
            content = hashlib.file_digest(file, "sha256").hexdigest()
            digest.update(f"{jar.name} {content}\n".encode())
    return digest.hexdigest()[:12]


def grounds_of(folder: Path, engine_version: str | None) -> Grounds:
    """Return what the verdict of a run rests on beside the code. ClusterError: nobody can say.

    How links were broken is said by the clusters that it made, not by what could be had before.
    """
    return Grounds(
        network=network_of(folder),
        engine_version=engine_version,
        python=platform.python_version(),
        confluent_kafka=confluent_kafka.__version__,
        librdkafka=confluent_kafka.libversion()[0],
    )


def run(
    directory: Path,
    engine: str,
    name: str,
    begun: Begun,
    *,
    control: bool,
    say: Callable[[str], None],
) -> Row:
    """Run one scenario into its folder, in the place of a run that does not count.

    One that crashes is not made, and keeps nobody from the others. CodeChangedError: it was of two
    codes, or would have been; it has no stamp then.
    """
    begun.refuse_changed(engine, name)
    folder = matrix.folder_of(directory, engine, name)
    keeping.remove(folder)
    try:
        scenario = load_scenario(name)
        flags = {"engine": engine}
        if begun.profile != matrix.PROFILE:
            flags["profile"] = begun.profile
        parameters = scenario.with_flags(flags)
        words = [*(f"--{flag} {value}" for flag, value in flags.items())]
        again = " ".join(["holdfast prove", name, *words, *([] if control else ["--no-control"])])
        outcome = prove(scenario, parameters, folder, command=again, control=control, say=say)
    except Exception as problem:  # noqa: BLE001 - whatever it is, it is kept, and others go on
        begun.refuse_changed(engine, name)  # halves of two codes crash, and that says nothing
        with suppress(OSError):  # a full disk
            folder.mkdir(parents=True, exist_ok=True)
        crashed(folder, problem)
        why = f"It crashed ({type(problem).__name__}: {problem}): {folder / CRASH}"
        say(why)
        found = matrix.row_of(directory, engine, name)
        if found is not None and _is_broken(found):  # it crashed behind its verdict
            return replace(found, verdict=f"{why} {found.verdict}")
        return matrix.not_made(directory, engine, name, why)
    begun.refuse_changed(engine, name)
    try:
        grounds = grounds_of(folder, begun.versions[engine])
        code = matrix.code_under(begun.asked[engine, name].code, begun.profile)
        matrix.stamp(folder, code, grounds, with_controls=control)
    except (OSError, ClusterError) as problem:
        with suppress(OSError):  # half a stamp is none
            (folder / matrix.STAMP).unlink(missing_ok=True)
        why = f"Nobody can say on what this rests, so that it is made again: {problem}."
        say(why)
        return _without_stamp(directory, engine, name, outcome, why)
    row = matrix.row_of(directory, engine, name)
    # None: its verdict could not be written, and says so.
    return _without_stamp(directory, engine, name, outcome) if row is None else row


def _without_stamp(directory: Path, engine: str, name: str, outcome: Outcome, why: str = "") -> Row:
    """Return the row of a run that counts for this time alone: what it broke is broken."""
    verdict = f"{why} {outcome.verdict}".strip()
    row = matrix.row_of(directory, engine, name)
    if row is None or Exit(row.exit) is Exit.KEPT:
        row = matrix.not_made(directory, engine, name, verdict)
    is_broken = outcome.exit is Exit.BROKEN
    return replace(row, verdict=verdict, exit=int(Exit.BROKEN if is_broken else Exit.NOT_MADE))


def left_out() -> dict[str, list[str]]:
    """Return why some scenarios can't be run here, and which these are."""
    if importlib.util.find_spec(SPARK) is not None:
        return {}
    found = [name for name in SCENARIOS if name in PIPELINES]
    return {f"there is no {SPARK}: pip install 'holdfast[spark]'": found} if found else {}


def as_json(rows: Iterable[Row]) -> str:
    """Return the matrix as it is written."""
    return json.dumps([asdict(row) for row in rows], indent=2)
