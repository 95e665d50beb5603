"""All scenarios side by side, on each engine: one page, made of what their runs have written.

Owns the folder that holds the runs, which of them need not be made again, and the page. How one is
run is for `lab.prove`.
"""

from __future__ import annotations

import fcntl
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from holdfast.cluster.layout import EMBEDDED, OLDER
from holdfast.cluster.plan import NAMESPACES, PROXIES
from holdfast.lab.journal import MANIFEST, Exit
from holdfast.lab.keeping import VERDICT
from holdfast.lab.parameters import ENGINE, LabError
from holdfast.lab.report.figures import NONE, percent
from holdfast.lab.report.page import templates
from holdfast.lab.report.scales import duration

MATRIX, PAGE = "matrix.json", "matrix.html"
LOCK = ".lock"
NOTHING: Mapping[str, Sequence[str]] = {}
STAMP = "code.json"  # in a run's folder, written last: which code it holds for, and with what
PROFILE = "lab"  # what is meant where none is named
_UNDER = ", profile "  # in a stamp, between the code and a profile that is another one
_LINKS = {NAMESPACES: "links broken in network namespaces", PROXIES: "links broken by proxies"}
# A promise's sentences, which `judge` writes, and what a table has room for.
_SHORT = (
    (
        r"Nothing acknowledged is lost: .*at least (\d+) cop.*RF (\d+).*",
        r"nothing lost (at least \1 of \2 copies)",
    ),
    (r"Nothing acknowledged is lost while .*", "nothing lost while its only disk is kept"),
    (r"Nothing is acknowledged \(acks=0\).*", "anything may be lost (acks=0)"),
    (r"An event is acknowledged by its leader alone.*", "lost with its leader (acks=1)"),
    (r"Unclean election is on.*", "lost where a replica that lacks it leads"),
    (r"What a consumer has read stays.*", "what was read stays"),
    (r"What a consumer has read may vanish.*", "what was read may vanish"),
    (r"Nothing is doubled or reordered.*", "nothing doubled"),
    (r"A retry may double.*", "a retry may double"),
    (r"Nothing is skipped; only what.*", "nothing skipped"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """What a verdict rests on beside the code: versions, and how links were broken."""

    network: str | None  # by namespaces or by proxies, which show less; None: it broke no links
    engine_version: str | None  # of an Apache Kafka
    python: str
    confluent_kafka: str
    librdkafka: str

    def words(self) -> dict[str, str]:
        """Return what the page says of each, but for the engine."""
        said = {
            "python": f"Python {self.python}",
            "clients": f"librdkafka {self.librdkafka} (confluent-kafka {self.confluent_kafka})",
        }
        return said if self.network is None else {**said, "links": _LINKS[self.network]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One scenario on one engine, of its parts that are no control. Times in ms."""

    scenario: str
    engine: str
    exit: int
    promise: str
    verdict: str
    share_acknowledged: float | None  # the least of all parts
    gap_ms: float | None  # the longest in which a partition acknowledged nothing
    gap_held_ms: float | None  # how much of that one the lab held a fault that it undid then
    recovered_ms: float | None  # the longest from a fault to an acknowledgement
    recovered_held_ms: float | None  # as of the gap
    controls_failed_by: str  # by what each control failed, as it must
    starved: str  # nodes of any part that got too little of a processor; empty: none
    settings: Mapping[str, str]  # with which it began; a part may change some
    folder: str  # of the run, from the page
    code: str | None  # that its verdict is of; None: nobody knows, or it was changed meanwhile
    grounds: Grounds | None  # what else it rests on; None as above
    with_controls: bool  # whether what must fail was run as well
    has_report: bool

    @property
    def word(self) -> str:
        return {Exit.KEPT: "kept", Exit.BROKEN: "broken"}.get(Exit(self.exit), "not made")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A scenario in a table: its rows side by side. None: it was not run there."""

    scenario: str
    rows: Sequence[Row | None]

    @property
    def found(self) -> list[Row]:
        return [row for row in self.rows if row is not None]

    @property
    def differs(self) -> bool:
        """Whether verdicts do. One that was not made is another one, too: it shows nothing."""
        return len({row.word for row in self.found}) > 1

    @property
    def shows_nothing(self) -> bool:
        """Whether nobody could make it: that is the same everywhere, and no agreement."""
        return all(Exit(row.exit) is Exit.NOT_MADE for row in self.found)

    @property
    def agrees(self) -> bool:
        """Whether several have decided it, and alike."""
        return len(self.found) > 1 and not self.differs and not self.shows_nothing

    @property
    def worst(self) -> Exit:
        """Return what all of it comes to; broken stands before what was not made."""
        return worst(self.found)

    def told(self, titles: Sequence[str], words_of: Callable[[Row], str]) -> list[tuple[str, str]]:
        """Return what there is to say of its rows, each thing once, and of whom; "": of them all.

        `titles`: what each row's side is called.
        """
        found: dict[str, list[str]] = {}
        for title, row in zip(titles, self.rows, strict=True):
            if row is not None and words_of(row):
                found.setdefault(words_of(row), []).append(title)
        count = len(self.found)
        return [
            ("" if len(whose) == count else ", ".join(whose), words)
            for words, whose in found.items()
        ]


def folder_of(directory: Path, engine: str, scenario: str) -> Path:
    """Return where the run of a scenario on an engine lies, or will."""
    return directory / engine / scenario


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Hold the folder: two at once would remove each other's runs. LabError: another one does.

    LabError also where it holds somebody's files: runs that do not count are removed in it.
    """
    _refuse_strange(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabError(
                f"{directory}: another `prove --all` writes there. Wait for it, or name another "
                "folder by --output."
            ) from None
        yield


def _refuse_strange(directory: Path) -> None:
    """LabError: there are files in the folder, and no matrix of ours says what they are."""
    others = {path.name for path in directory.iterdir()} if directory.exists() else set()
    if others <= {LOCK, f".{MATRIX}", f".{PAGE}"}:  # stopped before it had written anything
        return
    if written(directory) is not None:
        return
    raise LabError(
        f"{directory} is not empty, and has no {MATRIX} that `prove --all` has written: it would "
        "write and remove among what is somebody's. Name a new or an empty folder by --output, or "
        "one that it has written to; or empty this one."
    )


def written(directory: Path) -> list[dict[str, Any]] | None:
    """Return the rows of the matrix in a folder, as they were written; None: it has none of ours.

    They may be those of another version of this module, with other values.
    """
    try:
        rows = json.loads((directory / MATRIX).read_bytes())
        ours = {"scenario", "engine", "exit", "verdict"}
        if isinstance(rows, list) and all(ours <= row.keys() for row in rows):
            return rows
    except (OSError, ValueError, AttributeError):
        pass
    return None


def stamp(folder: Path, code: str, grounds: Grounds, *, with_controls: bool) -> None:
    """Say which code the verdict in a run's folder is of, and what else it rests on. OSError."""
    values = {"code": code, "controls": with_controls, **asdict(grounds)}
    (folder / STAMP).write_text(json.dumps(values) + "\n", encoding="utf-8")


def _stamped(folder: Path) -> tuple[str | None, Grounds | None, bool]:
    """Return the code that a verdict is of, what else it rests on, and whether with controls."""
    try:
        values = json.loads((folder / STAMP).read_bytes())
        grounds = Grounds(**{each.name: values[each.name] for each in fields(Grounds)})
        return str(values["code"]), grounds, bool(values["controls"])
    except (OSError, ValueError, KeyError, TypeError):
        return None, None, False


def code_under(code: str, profile: str) -> str:
    """Return what a stamp says of a code: its verdict under one profile is none under another."""
    return code if profile == PROFILE else f"{code}{_UNDER}{profile}"


def code_in(folder: Path) -> str | None:
    """Return which code the verdict in a run's folder is of, under any profile; None: nobody knows.

    Stamps of other versions say that as well, and may lack what else it rests on.
    """
    stamped = _told(folder / STAMP, "code")
    return None if stamped is None else stamped.partition(_UNDER)[0]


def profile_in(folder: Path) -> str | None:
    """Return under which profile a run was made; None: nobody knows.

    The stamp says so, or what was to be run, or the verdict: a run that was killed has not all.
    """
    stamped = _told(folder / STAMP, "code")
    if stamped is not None:
        return stamped.partition(_UNDER)[2] or PROFILE
    planned = _told(folder / MANIFEST, "parameters", "profile")
    return planned or _told(folder / VERDICT, "settings", "profile")


def _told(file: Path, *keys: str) -> str | None:
    """Return what a file says; None: nothing, or it can't be read."""
    try:
        value = json.loads(file.read_bytes())
        for key in keys:
            value = value[key]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return str(value)


def row_of(directory: Path, engine: str, scenario: str) -> Row | None:
    """Return what a run has come to; None: there is none that has ended."""
    folder = folder_of(directory, engine, scenario)
    code, grounds, with_controls = _stamped(folder)
    try:
        values = json.loads((folder / VERDICT).read_bytes())
        proofs = [part for part in values["parts"] if not part["control"]]
        controls = [part for part in values["parts"] if part["control"]]
        gap_ms, gap_held_ms = _longest(proofs, "gap_ms_longest", "gap_held_ms")
        recovered_ms, recovered_held_ms = _longest(
            proofs, "recovered_ms_longest", "recovered_held_ms"
        )
        return Row(
            scenario=scenario,
            engine=engine,
            exit=int(values["exit"]),
            promise=values["promise"],
            verdict=values["verdict"],
            share_acknowledged=_least(part["share_acknowledged"] for part in proofs),
            gap_ms=gap_ms,
            gap_held_ms=gap_held_ms,
            recovered_ms=recovered_ms,
            recovered_held_ms=recovered_held_ms,
            controls_failed_by="; ".join(map(_failure, controls)),
            starved="; ".join(part["starved"] for part in values["parts"] if part["starved"]),
            settings=values["settings"],
            folder=str(folder.relative_to(directory)),
            code=code,
            grounds=grounds,
            with_controls=with_controls,
            has_report=(folder / "report.html").exists(),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def not_made(directory: Path, engine: str, scenario: str, why: str) -> Row:
    """Return the row of a run of which there is no verdict."""
    return Row(
        scenario=scenario,
        engine=engine,
        exit=int(Exit.NOT_MADE),
        promise="",
        verdict=why,
        share_acknowledged=None,
        gap_ms=None,
        gap_held_ms=None,
        recovered_ms=None,
        recovered_held_ms=None,
        controls_failed_by="",
        starved="",
        settings={},
        folder=str(folder_of(directory, engine, scenario).relative_to(directory)),
        code=None,
        grounds=None,
        with_controls=False,
        has_report=False,
    )


def is_done(row: Row | None, code: str, *, network: str | None, with_controls: bool) -> bool:
    """Say whether a run need not be made again: it was decided, of this code, with what is asked.

    A verdict holds for one code: of another one it says nothing. `network`: how links would be
    broken now; where that is by namespaces, what was kept by proxies, which show less, is not
    enough. What is broken is so without a control, and however links were. Versions are told, and
    end nothing.
    """
    if row is None or row.code != code or row.grounds is None:
        return False
    if Exit(row.exit) is not Exit.KEPT:
        return Exit(row.exit) is Exit.BROKEN
    has_shown_less = row.grounds.network == PROXIES and network != PROXIES
    return (row.with_controls or not with_controls) and not has_shown_less


def worst(rows: Iterable[Row]) -> Exit:
    """Return what all of them come to: broken, if one is; not made, if one is not."""
    exits = {Exit(row.exit) for row in rows}
    return next((e for e in (Exit.BROKEN, Exit.NOT_MADE) if e in exits), Exit.KEPT)


def write(
    directory: Path,
    rows: Sequence[Row],
    planned: Mapping[str, int],
    unplanned: Mapping[str, Sequence[str]] = NOTHING,
) -> Path:
    """Write the matrix as data and as a page; return the page. OSError.

    `planned`: how many scenarios each engine is to have, in their order. `unplanned`: why some
    can't be run here, and which.
    """
    put(directory / MATRIX, json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    put(directory / PAGE, render(rows, planned, unplanned))
    return directory / PAGE


def put(path: Path, content: str) -> None:
    """Write a file; who looks meanwhile sees the one before. OSError."""
    whole = path.with_name(f".{path.name}")
    whole.write_text(content, encoding="utf-8")
    whole.replace(path)


def render(
    rows: Sequence[Row],
    planned: Mapping[str, int],
    unplanned: Mapping[str, Sequence[str]] = NOTHING,
) -> str:
    """Return the page: a row a scenario, its engines side by side; and how far it is, until whole.

    What differs stands first.
    """
    engines = list(dict.fromkeys(row.engine for row in rows))
    titles = [title_of(engine, rows) for engine in engines]
    found = {(row.scenario, row.engine): row for row in rows}
    scenarios = dict.fromkeys(row.scenario for row in rows)
    lines = [
        Line(scenario=name, rows=[found.get((name, engine)) for engine in engines])
        for name in scenarios
    ]
    differ = sorted((line for line in lines if line.differs), key=lambda line: line.worst)
    said = [row.grounds.words() for row in rows if row.grounds is not None]
    common = dict(_agreed(said))
    settings = _usual([row.settings for row in rows if row.settings])
    return page_of(
        "matrix.html",
        titles=titles,
        tallies=[tally(row for row in rows if row.engine == engine) for engine in engines],
        differ=differ,
        others=[line for line in lines if not line.differs],
        agree=sum(line.agrees for line in lines),
        nothing=[line for line in lines if len(line.found) > 1 and line.shows_nothing],
        so_far=_so_far(rows, planned),
        unplanned=unplanned,
        controls=_controls(rows),
        uncontrolled=lambda row: _uncontrolled(row, rows),
        common=[*common.values()],
        made_with=lambda row: _labelled("Made with ", _made_with(row, common)),
        settings=_listed(settings),
        other_settings=lambda row: _labelled(
            "Other settings are ", _listed(_others(row, settings))
        ),
        has_others=any(_others(row, settings) for row in rows),
    )


def page_of(template: str, **values: Any) -> str:
    """Return a page on which runs stand side by side; it has what tables of them take."""
    return str(
        templates()
        .get_template(template)
        .render(
            shown=_shown,
            percent=percent,
            promise=lambda row: row.promise,
            in_short=lambda row: in_short(row.promise),
            kept=lambda row: row.verdict if row.word == "kept" else "",
            not_kept=lambda row: row.verdict if row.word != "kept" else "",
            busy=lambda row: _labelled("The machine was busy: ", row.starved),
            control=lambda row: _labelled("Its control: ", row.controls_failed_by),
            **values,
        )
    )


def _labelled(label: str, words: str) -> str:
    """Return a sentence, where there are words for it."""
    return f"{label}{words}." if words else ""


def _controls(rows: Iterable[Row]) -> str:
    """Return of how many rows what must fail was run: all, some, none. Unstamped: nobody knows."""
    found = {row.with_controls for row in rows if row.code is not None}
    return "some" if len(found) > 1 else "none" if found == {False} else "all"


def _uncontrolled(row: Row, rows: Iterable[Row]) -> str:
    """Return what is said of a row without its control, where others have theirs."""
    is_said = row.code is not None and not row.with_controls and _controls(rows) == "some"
    return "Its control was left out (--no-control)." if is_said else ""


def _made_with(row: Row, common: Mapping[str, str]) -> str:
    words = {} if row.grounds is None else row.grounds.words()
    return ", ".join(words[kind] for kind in words if kind not in common)


def title_of(engine: str, rows: Iterable[Row]) -> str:
    """Return what people call an engine, with the versions that its rows are of."""
    if engine == EMBEDDED:
        return engine
    found = {row.grounds.engine_version for row in rows if row.engine == engine and row.grounds}
    versions = ", ".join(sorted(version for version in found if version is not None))
    return f"Apache Kafka {versions or ('3.9' if engine == OLDER else '4')}"


def tally(rows: Iterable[Row]) -> str:
    """Return how many rows came to what."""
    counts = Counter(row.word for row in rows)
    words = ("kept", "broken", "not made")
    return ", ".join(f"{counts[word]} {word}" for word in words if counts[word])


def in_short(promise: str) -> str:
    """Return a promise in as few words as a table has room for; what has none is told as it is."""
    sentences = re.split(r"(?<=\.) ", promise) if promise else []
    return " · ".join(map(_sentence_in_short, sentences))


def _sentence_in_short(sentence: str) -> str:
    for pattern, words in _SHORT:
        found = re.fullmatch(pattern, sentence)
        if found:
            return found.expand(words)
    return sentence


def _so_far(rows: Iterable[Row], planned: Mapping[str, int]) -> str:
    """Return how many rows there are on each engine of how many; nothing, if these are all.

    A row that lies elsewhere was put aside, and nothing has come into its place yet.
    """
    there = (row for row in rows if row.folder == str(folder_of(Path(), row.engine, row.scenario)))
    made = Counter(row.engine for row in there)
    unfinished = [engine for engine, count in planned.items() if made[engine] < count]
    if not unfinished:
        return ""
    return "; ".join(
        f"{made[engine]} of {count} on {engine}"
        if made[engine] or engine == unfinished[0]  # one after the other: this one is at work
        else f"{engine} not begun"
        for engine, count in planned.items()
    )


def _agreed(said: Sequence[Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield what is the same wherever it is said."""
    for kind in dict.fromkeys(kind for each in said for kind in each):
        words = {each[kind] for each in said if kind in each}
        if len(words) == 1:
            yield kind, words.pop()


def _usual(settings: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return what most rows have; what most are without is a matter of the others.

    Whose nodes they are stands above the rows.
    """
    names = dict.fromkeys(name for each in settings for name in each if name != ENGINE)
    found = {name: Counter(each.get(name) for each in settings).most_common(1) for name in names}
    return {name: value for name, [(value, _)] in found.items() if value is not None}


def _others(row: Row, usual: Mapping[str, str]) -> dict[str, str]:
    """Return what a row has besides the engine that is not as usual."""
    own = row.settings.items()
    return {name: value for name, value in own if name != ENGINE and usual.get(name) != value}


def _listed(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def _shown(ms: float | None) -> str:
    return NONE if ms is None else duration(ms)


def _failure(part: dict[str, Any]) -> str:
    broken = [f"{part['anomalies'][name]:,} {name}" for name in part["broken"]]
    failed = [f"not so: {check['name']}" for check in part["checks"] if not check["kept"]]
    return ", ".join([*broken, *failed[:1]]) or "nothing"


def _least(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _longest(
    parts: Sequence[Mapping[str, Any]], name: str, held: str
) -> tuple[float | None, float | None]:
    """Return the longest such time of a part, and for how much of it a fault was held there."""
    found = [part for part in parts if part[name] is not None]
    longest = max(found, key=lambda part: float(part[name]), default=None)
    return (None, None) if longest is None else (longest[name], longest[held])
