"""`holdfast prove --all --beside`: two folders of `prove --all`, held against each other.

Owns what is read of them, which of their rows belong together, and what is said of these. Runs
nothing, and changes nothing but the page that it writes: a run into a folder of older code would
begin by removing what is to be compared.
"""

from __future__ import annotations

import math
import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import quote

from holdfast.cluster.plan import NAMESPACES, PROXIES
from holdfast.lab import matrix
from holdfast.lab.journal import Exit
from holdfast.lab.matrix import Grounds, Line, Row
from holdfast.lab.parameters import ENGINE, LabError
from holdfast.lab.report.figures import NONE, percent

PAGE = "beside.html"
CONTROL = "its control"  # told as a setting is: a flag chooses it
_CONTROL = {True: "run", False: "left out"}
MUCH = 2.0  # a time that is so many times the other one, or the other way round, is set in bold
# What a row of another version may be without.
_UNSAID: Mapping[str, Any] = {
    "promise": "",
    "controls_failed_by": "",
    "starved": "",
    "settings": {},
    "folder": "",
    "with_controls": True,
    "has_report": False,
}
_WORDS = (
    "scenario",
    "engine",
    "folder",
    "promise",
    "verdict",
    "controls_failed_by",
    "starved",
)
_FLAGS = ("with_controls", "has_report")
_FIGURES = (
    "share_acknowledged",
    "gap_ms",
    "gap_held_ms",
    "recovered_ms",
    "recovered_held_ms",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """What `prove --all` has left in a folder."""

    path: Path
    rows: tuple[Row, ...]
    unsaid: tuple[str, ...]  # what its version did not write down yet

    @property
    def engines(self) -> list[str]:
        return list(dict.fromkeys(row.engine for row in self.rows))

    def of(self, engines: Sequence[str]) -> Folder:
        """Return it with the rows of these engines alone; none are named: of all of them."""
        rows = tuple(row for row in self.rows if not engines or row.engine in engines)
        if not rows:
            names = ", ".join(engine or "''" for engine in engines)
            raise LabError(f"{self.path}: no verdict of {names}; it has {', '.join(self.engines)}.")
        return Folder(path=self.path, rows=rows, unsaid=self.unsaid)

    def report(self, row: Row, start: Path) -> str:
        """Return the way to a row's report from a page in `start`; "": there is none."""
        report = self.path / row.folder / "report.html"
        return quote(os.path.relpath(report, start)) if row.folder and report.exists() else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair(Line):
    """A scenario in both folders, on one engine in each."""

    rows: tuple[Row, Row]
    is_cross: bool  # on two engines

    @property
    def name(self) -> str:
        return self.scenario if self.is_cross else f"{self.scenario} on {self.rows[0].engine}"

    @property
    def settings(self) -> dict[str, tuple[str, str]]:
        """What was not set alike, whether a control was run included; {}: nobody knows of one."""
        if not all(row.settings for row in self.rows):
            return {}
        one, other = map(_settings, self.rows)
        names = dict.fromkeys([*one, *other])
        both = {name: (one.get(name, NONE), other.get(name, NONE)) for name in names}
        return {name: values for name, values in both.items() if values[0] != values[1]}

    @property
    def settings_told(self) -> list[str]:
        return [f"{name} {one} | {other}" for name, (one, other) in self.settings.items()]

    @property
    def same_code(self) -> bool | None:
        """Whether both are of one code; None: of one of them nobody knows which it was."""
        one, other = self.rows
        return None if None in {one.code, other.code} else one.code == other.code


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two folders and what is in both of them. What differs in verdict stands first."""

    folders: tuple[Folder, Folder]
    pairs: tuple[Pair, ...]

    @property
    def differ(self) -> list[Pair]:
        return [pair for pair in self.pairs if pair.differs]

    @property
    def nothing(self) -> list[Pair]:
        """What was made in neither: the same in both, and no agreement."""
        return [pair for pair in self.pairs if pair.shows_nothing]

    @property
    def status(self) -> int:
        """The exit status, as of diff: 0 the same, 1 not; 2: of some nobody can say."""
        return 1 if self.differ else 2 if self.nothing else 0

    @property
    def titles(self) -> list[str]:
        """What each side is called, with its engine where the sides have not the same."""
        names = _names(*(folder.path for folder in self.folders))
        if not self.pairs[0].is_cross:
            return names
        return [
            f"{name} ({matrix.title_of(folder.engines[0], folder.rows)})"
            for name, folder in zip(names, self.folders, strict=True)
        ]

    @property
    def engine(self) -> str:
        """The one engine that all of it is of; "": there are several."""
        engines = {row.engine for pair in self.pairs for row in pair.rows}
        return engines.pop() if len(engines) == 1 else ""

    @property
    def alone(self) -> list[list[str]]:
        """What is in one folder alone, and so not compared: rows, or all of an engine."""
        compared = {(row.engine, row.scenario) for pair in self.pairs for row in pair.rows}
        engines = {engine for engine, _ in compared}
        return [[*_alone(folder, compared, engines)] for folder in self.folders]

    @property
    def made_with(self) -> list[tuple[str, str]]:
        """What the sides rest on beside the code, where that is not the same: words of each."""
        one, other = (_made_with(pair.rows[side] for pair in self.pairs) for side in (0, 1))
        kinds = dict.fromkeys([*one, *other])
        if self.pairs[0].is_cross:  # their titles say which Apache Kafka
            kinds.pop(ENGINE, None)
        both = [(one.get(kind, NONE), other.get(kind, NONE)) for kind in kinds]
        return [words for words in both if words[0] != words[1]]


def compare(directory: Path, other: Path, engines: Sequence[str]) -> Comparison:
    """Hold the folder of one `prove --all` against another's. LabError: they can't be.

    `engines`: whose rows count; none: all that both have. Where they have none in common and one
    each, these two are compared.
    """
    if directory.exists() and other.exists() and directory.samefile(other):
        raise LabError(
            f"--beside {other}: it is the same folder as that of --output. Its engines stand side "
            f"by side in {directory / matrix.PAGE}."
        )
    run_it = f"`holdfast prove --all --output {shlex.quote(str(directory))}` runs all into it"
    folders = (
        read(directory, f"--output {directory}", f" --beside runs nothing: {run_it}.").of(engines),
        read(other, f"--beside {other}", " Name one that was --output of it.").of(engines),
    )
    pairs = _pairs(folders)
    if not pairs:
        raise LabError(f"{directory} and {other}: no scenario is in both, so nothing is compared.")
    return Comparison(folders=folders, pairs=tuple(pairs))


def read(directory: Path, named: str, advice: str) -> Folder:
    """Return what is in a folder of `prove --all`. LabError: it is none; `advice`: what then."""
    if not directory.is_dir():
        raise LabError(f"{named}: there is no such folder.{advice}")
    written = matrix.written(directory)
    try:
        rows = [_row(values) for values in written or []]
    except (ValueError, TypeError, AttributeError):
        written = None
    if written is None:
        raise LabError(
            f"{named}: it has no {matrix.MATRIX} that `prove --all` has written.{advice}"
        )
    if not rows:
        raise LabError(f"{named}: there is no verdict in it yet.{advice}")
    names = [each.name for each in fields(Row)]
    unsaid = tuple(name for name in names if any(_lacks(values, name) for values in written))
    return Folder(path=directory, rows=tuple(rows), unsaid=unsaid)


def _row(values: Mapping[str, Any]) -> Row:
    """Return a row as it was written; what its version did not say stays unsaid."""
    told = {each.name: values.get(each.name, _UNSAID.get(each.name)) for each in fields(Row)}
    _refuse(not isinstance(told["grounds"], dict | None), "grounds are none")
    told["grounds"] = None if _lacks(values, "grounds") else _grounds(told["grounds"])
    row = Row(**told)
    Exit(row.exit)
    _refuse(type(row.exit) is not int, "an exit status is none")
    _refuse(not all(isinstance(told[name], str) for name in _WORDS), "words are none")
    _refuse(not isinstance(row.code, str | None), "a code is none")
    _refuse(not all(isinstance(told[name], bool) for name in _FLAGS), "a flag is none")
    _refuse(not all(map(_is_figure, (told[name] for name in _FIGURES))), "a figure is none")
    _refuse(not isinstance(row.settings, dict), "settings are none")
    _refuse(not all(isinstance(value, str) for value in row.settings.values()), "a setting is none")
    return row


def _grounds(told: Any) -> Grounds | None:
    """Return what a verdict rests on beside the code, as it was written. TypeError."""
    if told is None:
        return None
    grounds = Grounds(**{each.name: told[each.name] for each in fields(Grounds)})
    versions = (grounds.python, grounds.confluent_kafka, grounds.librdkafka)
    _refuse(not all(isinstance(version, str) for version in versions), "a version is none")
    _refuse(not isinstance(grounds.engine_version, str | None), "an engine's version is none")
    _refuse(grounds.network not in {None, NAMESPACES, PROXIES}, "a network is none")
    return grounds


def _lacks(values: Mapping[str, Any], name: str) -> bool:
    """Whether a row does not say this; of grounds each part has to be there."""
    if name != "grounds" or values.get(name) is None:
        return name not in values
    return any(each.name not in values[name] for each in fields(Grounds))


def _is_figure(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, float | int) and not isinstance(value, bool) and math.isfinite(value)


def _refuse(is_so: bool, why: str) -> None:
    if is_so:
        raise TypeError(why)


def _pairs(folders: tuple[Folder, Folder]) -> list[Pair]:
    """Return what is in both, differing verdicts first. LabError: nobody can say what belongs."""
    one, other = folders
    common = [engine for engine in one.engines if engine in other.engines]
    engines = [(engine, engine) for engine in common]
    if not common:
        if len(one.engines) > 1 or len(other.engines) > 1:
            choice = f"{one.engines[0]},{other.engines[0]}"
            raise LabError(
                f"{one.path} has {', '.join(one.engines)}, and {other.path} has "
                f"{', '.join(other.engines)}: they have no engine in common. Name one of each, "
                f"such as --engine {choice}."
            )
        engines = [(one.engines[0], other.engines[0])]
    found = {(row.engine, row.scenario): row for row in other.rows}
    pairs = [
        Pair(scenario=row.scenario, rows=(row, found[theirs, row.scenario]), is_cross=not common)
        for mine, theirs in engines
        for row in one.rows
        if row.engine == mine and (theirs, row.scenario) in found
    ]
    return sorted(pairs, key=lambda pair: (not pair.differs, pair.worst if pair.differs else 0))


def _names(one: Path, other: Path) -> list[str]:
    """Return what to call two folders: as much of their paths as tells them apart."""
    count = min(len(one.parts), len(other.parts))
    for length in range(1, count):
        names = ["/".join(path.parts[-length:]) for path in (one, other)]
        if names[0] != names[1]:
            return names
    return [str(one), str(other)]


def _alone(folder: Folder, compared: set[tuple[str, str]], engines: set[str]) -> Iterator[str]:
    for engine in folder.engines:
        if engine not in engines:
            yield f"all on {matrix.title_of(engine, folder.rows)}"
    for row in folder.rows:
        if row.engine in engines and (row.engine, row.scenario) not in compared:
            yield f"{row.scenario} on {row.engine}"


def _settings(row: Row) -> dict[str, str]:
    values = {name: value for name, value in row.settings.items() if name != ENGINE}
    return values | {CONTROL: _CONTROL[row.with_controls]}


def _made_with(rows: Iterable[Row]) -> dict[str, str]:
    """Return what rows rest on beside the code, in words, by its kind."""
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.grounds is not None:
            words = row.grounds.words()
            if row.grounds.engine_version is not None:
                words[ENGINE] = f"Apache Kafka {row.grounds.engine_version}"
            for kind, each in words.items():
                found.setdefault(kind, {})[each] = None
    return {kind: ", ".join(each) for kind, each in found.items()}


def ratio(now: float | None, then: float | None) -> float | None:
    """Return how many times as long it took; None: nobody knows, or there was no time at all."""
    return None if now is None or not then else now / then


def difference(now: float | None, then: float | None) -> float | None:
    return None if now is None or then is None else now - then


def times(now: float | None, then: float | None) -> str:
    """Return a ratio for people."""
    found = ratio(now, then)
    if found is None:
        return NONE
    digits = ".1g" if found < 0.1 else ".2f" if found < 10 else ",.0f"
    return f"{found:{digits}} times"


def points(now: float | None, then: float | None) -> str:
    """Return a difference of shares for people, in percentage points."""
    found = difference(now, then)
    if not found:
        return NONE if found is None else "0"
    return f"{'+' if found > 0 else '-'}{percent(abs(found)).removesuffix(' %')} points"


def is_much(now: float | None, then: float | None) -> bool:
    found = ratio(now, then)
    return found is not None and (found >= MUCH or found <= 1 / MUCH)


def write(comparison: Comparison) -> Path:
    """Write the page into the first of the folders; return it. LabError: it can't be."""
    path = comparison.folders[0].path / PAGE
    content = matrix.page_of(
        "beside.html",
        comparison=comparison,
        titles=comparison.titles,
        tallies=[matrix.tally(pair.rows[side] for pair in comparison.pairs) for side in (0, 1)],
        times=times,
        points=points,
        is_much=is_much,
        notes=[*notes(comparison)],
    )
    try:
        matrix.put(path, content)
    except OSError as error:
        raise LabError(f"{path} can't be written: {error.strerror}.") from error
    return path


def lines(comparison: Comparison, page: Path) -> Iterator[str]:
    """Yield what a terminal is told: what differs in verdict, and what else is not the same."""
    differ, count = comparison.differ, len(comparison.pairs)
    decided = count - len(comparison.nothing)
    if differ:
        yield f"{len(differ)} of {count} verdicts {'differs' if len(differ) == 1 else 'differ'}:"
    elif count == decided == 1:
        yield "The one verdict is the same in both."
    elif decided:
        yield f"None of {decided} verdicts differs."
    for pair in differ:
        words = [
            f"{row.word} in {title}"
            for row, title in zip(pair.rows, comparison.titles, strict=True)
        ]
        yield f"  {pair.name}: {', '.join(words)}"
    if comparison.nothing:
        names = ", ".join(pair.name for pair in comparison.nothing)
        yield f"{count - decided} of {count} not made in both, which shows nothing: {names}."
    yield from notes(comparison)
    yield f"Page:    {page}"


def notes(comparison: Comparison) -> Iterator[str]:
    """Yield in what the folders are not alike, so that nobody takes it for a change of verdicts."""
    for title, folder in zip(comparison.titles, comparison.folders, strict=True):
        if folder.unsaid:
            unsaid = ", ".join(folder.unsaid)
            yield f"{title} was written by another version, which doesn't say: {unsaid}."
    count = len(comparison.pairs)
    changed = sum(pair.same_code is False for pair in comparison.pairs)
    if changed and not comparison.pairs[0].is_cross:  # two engines are of two codes
        yield f"The code is another one in {changed} of {count}."
    if comparison.made_with:
        yield f"Made with: {'; '.join(map(' | '.join, comparison.made_with))}."
    settings = Counter(told for pair in comparison.pairs for told in pair.settings_told)
    if settings:
        told = ", ".join(f"{words} (in {number})" for words, number in settings.most_common())
        yield f"Other settings: {told}."
    alone = [
        f"{name} (only in {title})"
        for title, names in zip(comparison.titles, comparison.alone, strict=True)
        for name in names
    ]
    if alone:
        yield f"Not compared: {', '.join(alone)}."


def as_json(comparison: Comparison, page: Path) -> dict[str, Any]:
    """For machines. Of each pair of values the first is that of --output."""
    return {
        "folders": [str(folder.path) for folder in comparison.folders],
        "page": str(page),
        "compared": len(comparison.pairs),
        "differ": len(comparison.differ),
        "not_made_in_both": len(comparison.nothing),
        "made_with": comparison.made_with,
        "alone": comparison.alone,
        "unsaid": [folder.unsaid for folder in comparison.folders],
        "rows": [*map(_pair_as_json, comparison.pairs)],
    }


def _pair_as_json(pair: Pair) -> dict[str, Any]:
    one, other = pair.rows
    shares = one.share_acknowledged, other.share_acknowledged
    gaps, recovered = (one.gap_ms, other.gap_ms), (one.recovered_ms, other.recovered_ms)
    return {
        "scenario": pair.scenario,
        "engines": [row.engine for row in pair.rows],
        "differs": pair.differs,
        "verdicts": [row.word for row in pair.rows],
        "sentences": [row.verdict for row in pair.rows],
        "promises": [row.promise for row in pair.rows],
        "share_acknowledged": shares,
        "share_difference": difference(*shares),
        "gap_ms": gaps,
        "gap_ratio": ratio(*gaps),
        "gap_held_ms": [row.gap_held_ms for row in pair.rows],
        "recovered_ms": recovered,
        "recovered_ratio": ratio(*recovered),
        "recovered_held_ms": [row.recovered_held_ms for row in pair.rows],
        "settings": pair.settings,
        "same_code": pair.same_code,
    }
