"""Goal: the page of all scenarios says what each engine's run came to, and what is not run again.

Method: verdicts by hand in a folder; the page's rows, and what differs between engines.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

from holdfast.cli.proving import prove_all
from holdfast.cluster import ClusterError, LocalCluster, apache
from holdfast.cluster.network import possible
from holdfast.cluster.network.possible import Possibility
from holdfast.cluster.plan import NAMESPACES, PROXIES
from holdfast.lab import background, matrix
from holdfast.lab.background import fingerprint
from holdfast.lab.journal import Exit
from holdfast.lab.parameters import LabError
from holdfast.lab.prove import CRASH
from holdfast.lab.soak.exercised import by_scenario

CODE = "0123456789abcdef"
NO_JARS = sha256().hexdigest()[:12]
GROUNDS = matrix.Grounds(
    network=None,
    engine_version=None,
    python="3.11.9",
    confluent_kafka="2.16.1",
    librdkafka="2.16.0",
)
SETTINGS = {"acks": "all", "profile": "lab", "brokers": "3"}


def verdict(
    directory: Path,
    engine: str,
    scenario: str,
    exit_: Exit,
    grounds: matrix.Grounds = GROUNDS,
    **changes: Any,
) -> None:
    part: dict[str, Any] = {
        "control": False,
        "share_acknowledged": 0.98,
        "gap_ms_longest": 3100.0,
        "gap_held_ms": 2500.0,
        "recovered_ms_longest": 3200.0,
        "recovered_held_ms": 2600.0,
        "starved": None,
        "anomalies": {"lost": 0},
        "broken": [],
        "checks": [],
    }
    control = {**part, "control": True, "anomalies": {"lost": 20}, "broken": ["lost"]}
    values = {
        "exit": int(exit_),
        "promise": "Nothing is lost.",
        "verdict": "It was so.",
        "settings": SETTINGS,
        "parts": [
            part,
            {
                **part,
                "share_acknowledged": 0.5,
                "gap_ms_longest": 9.0,
                "gap_held_ms": 5.0,
                "recovered_ms_longest": None,
            },
            control,
        ],
        **changes,
    }
    folder = matrix.folder_of(directory, engine, scenario)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "verdict.json").write_text(json.dumps(values))
    (folder / "report.html").touch()
    matrix.stamp(folder, CODE, grounds, with_controls=True)


def is_done(
    row: matrix.Row | None,
    code: str = CODE,
    *,
    network: str | None = NAMESPACES,
    with_controls: bool = True,
) -> bool:
    return matrix.is_done(row, code, network=network, with_controls=with_controls)


def test_a_row_has_the_worst_of_the_parts_that_prove(tmp_path: Path) -> None:
    verdict(tmp_path, "embedded", "rack-loss", Exit.KEPT)
    row = matrix.row_of(tmp_path, "embedded", "rack-loss")
    assert row is not None
    assert (row.word, row.share_acknowledged, row.gap_ms) == ("kept", 0.5, 3100.0)
    assert (row.gap_held_ms, row.starved) == (2500.0, ""), "of the part with the longest gap"
    assert (row.recovered_ms, row.recovered_held_ms) == (3200.0, 2600.0)
    assert row.controls_failed_by == "20 lost"
    assert row.folder == "embedded/rack-loss"
    assert row.has_report
    assert is_done(row)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"exit": 9, "parts": []}', '{"parts": 1}'])
def test_what_can_not_be_read_is_run_again(tmp_path: Path, text: str) -> None:
    verdict(tmp_path, "embedded", "rack-loss", Exit.KEPT)
    (tmp_path / "embedded" / "rack-loss" / "verdict.json").write_text(text)
    assert matrix.row_of(tmp_path, "embedded", "rack-loss") is None
    assert not is_done(None)


def test_what_was_not_made_is_run_again(tmp_path: Path) -> None:
    verdict(tmp_path, "apache", "rack-loss", Exit.NOT_MADE, parts=[])
    row = matrix.row_of(tmp_path, "apache", "rack-loss")
    assert row is not None
    assert row.word == "not made"
    assert not is_done(row)


def test_the_page_has_both_engines_and_names_where_they_differ(tmp_path: Path) -> None:
    for engine, exit_ in {"embedded": Exit.KEPT, "apache": Exit.BROKEN}.items():
        verdict(tmp_path, engine, "rack-loss", exit_)
        verdict(tmp_path, engine, "retention", Exit.KEPT)
    rows = [
        row
        for engine in ("embedded", "apache")
        for name in ("rack-loss", "retention")
        if (row := matrix.row_of(tmp_path, engine, name)) is not None
    ]
    page = matrix.write(tmp_path, rows, {"embedded": 2, "apache": 2}).read_text()
    assert "Engines differ</b>" in page
    assert page.count('href="apache/rack-loss/report.html"') == 1
    assert ">embedded</th>" in page
    assert "50.0 %" in page
    assert json.loads((tmp_path / "matrix.json").read_text())[0]["scenario"] == "rack-loss"
    assert matrix.worst(rows) is Exit.BROKEN
    assert matrix.worst(rows[:2]) is Exit.KEPT


def test_a_verdict_holds_for_one_code_and_for_what_was_asked(tmp_path: Path) -> None:
    verdict(tmp_path, "embedded", "rack-loss", Exit.KEPT)
    row = matrix.row_of(tmp_path, "embedded", "rack-loss")
    assert is_done(row)
    assert not is_done(row, "another code")
    folder = matrix.folder_of(tmp_path, "embedded", "rack-loss")
    matrix.stamp(folder, CODE, GROUNDS, with_controls=False)
    alone = matrix.row_of(tmp_path, "embedded", "rack-loss")
    assert not is_done(alone)
    assert is_done(alone, with_controls=False)
    (folder / matrix.STAMP).unlink()
    assert not is_done(matrix.row_of(tmp_path, "embedded", "rack-loss"))


@pytest.mark.parametrize(
    ("made", "now", "code", "done"),
    [
        (None, NAMESPACES, Exit.KEPT, True),
        (NAMESPACES, NAMESPACES, Exit.KEPT, True),
        (PROXIES, NAMESPACES, Exit.KEPT, False),
        (PROXIES, NAMESPACES, Exit.BROKEN, True),
        (PROXIES, PROXIES, Exit.KEPT, True),
        (NAMESPACES, PROXIES, Exit.KEPT, True),  # which show all that proxies do, and more
    ],
)
def test_what_was_kept_by_proxies_is_no_verdict_by_namespaces(
    tmp_path: Path, made: str | None, now: str, code: Exit, done: bool
) -> None:
    """Seen to fail: what they had broken was removed without a word, and made again."""
    verdict(tmp_path, "embedded", "split-brain", code, replace(GROUNDS, network=made))
    row = matrix.row_of(tmp_path, "embedded", "split-brain")
    assert is_done(row, network=now) is done


def test_a_stamp_of_before_that_does_not_say_on_what_it_rests_does_not_count(
    tmp_path: Path,
) -> None:
    verdict(tmp_path, "embedded", "split-brain", Exit.KEPT)
    stamp = matrix.folder_of(tmp_path, "embedded", "split-brain") / matrix.STAMP
    stamp.write_text(json.dumps({"code": CODE, "controls": True}))
    assert not is_done(matrix.row_of(tmp_path, "embedded", "split-brain"))


def page_of(directory: Path, runs: dict[tuple[str, str], matrix.Grounds]) -> str:
    """Return the page of these runs and of one that crashed, without its tags."""
    for (engine, name), grounds in runs.items():
        verdict(directory, engine, name, Exit.KEPT, grounds)
    found = [matrix.row_of(directory, engine, name) for engine, name in runs]
    rows = [row for row in found if row is not None]
    rows.append(matrix.not_made(directory, "embedded", "retention", "It crashed."))
    page = matrix.write(directory, rows, {}).read_text()
    return re.sub("<[^>]*>", "|", page[page.index("<main>") :])


def test_the_page_says_once_what_all_rest_on(tmp_path: Path) -> None:
    theirs = replace(GROUNDS, engine_version="4.3.1")
    page = page_of(
        tmp_path,
        {
            ("embedded", "rack-loss"): GROUNDS,
            ("embedded", "split-brain"): replace(GROUNDS, network=NAMESPACES),
            ("apache", "rack-loss"): theirs,
            ("apache", "split-brain"): replace(theirs, network=NAMESPACES),
        },
    )
    assert (
        "Made with Python 3.11.9, librdkafka 2.16.0 (confluent-kafka 2.16.1), "
        "links broken in network namespaces." in page
    )
    assert "|Apache Kafka 4.3.1|" in page
    assert page.count("Python") == page.count("namespaces") == page.count("Made with") == 1
    rows = json.loads((tmp_path / matrix.MATRIX).read_bytes())
    assert rows[3]["grounds"] == {
        "network": "namespaces",
        "engine_version": "4.3.1",
        "python": "3.11.9",
        "confluent_kafka": "2.16.1",
        "librdkafka": "2.16.0",
    }


def test_the_page_says_of_each_row_in_what_they_are_apart(tmp_path: Path) -> None:
    page = page_of(
        tmp_path,
        {
            ("embedded", "rack-loss"): replace(GROUNDS, python="3.12.1"),
            ("embedded", "split-brain"): replace(GROUNDS, network=NAMESPACES),
            ("embedded", "three-zones"): replace(GROUNDS, network=PROXIES),
        },
    )
    assert "|Made with librdkafka 2.16.0 (confluent-kafka 2.16.1).|" in page
    assert "|Made with Python 3.12.1.|" in page
    assert "|Made with Python 3.11.9, links broken in network namespaces.|" in page
    assert "|Made with Python 3.11.9, links broken by proxies.|" in page


def test_the_page_says_how_long_the_lab_itself_held_a_fault(tmp_path: Path) -> None:
    page = page_of(tmp_path, {("embedded", "split-brain"): GROUNDS})
    assert "|3.10 s|" in page
    assert "|2.50 s held|" in page
    assert "|3.20 s|2.60 s held|" in re.sub("[|]+", "|", page)
    assert "no engine's own" in page
    assert "the starts of nodes, a JVM's included" in page


def test_what_was_never_sent_or_answered_has_no_figures(tmp_path: Path) -> None:
    nothing = {"share_acknowledged": None, "gap_ms_longest": None, "gap_held_ms": None}
    part = {
        "control": False,
        **nothing,
        "recovered_ms_longest": None,
        "recovered_held_ms": None,
        "starved": None,
    }
    verdict(tmp_path, "embedded", "retention", Exit.KEPT, parts=[part])
    row = matrix.row_of(tmp_path, "embedded", "retention")
    assert row is not None
    page = matrix.write(tmp_path, [row], {}).read_text()
    assert page.count('<td class="n from">-</td>') == 3


def test_a_share_is_all_only_if_it_is(tmp_path: Path) -> None:
    part: dict[str, Any] = {
        "control": False,
        "share_acknowledged": 5767 / 5769,
        "gap_ms_longest": 1.0,
    }
    part |= {
        "gap_held_ms": 0.0,
        "recovered_ms_longest": None,
        "recovered_held_ms": None,
        "starved": None,
    }
    verdict(tmp_path, "embedded", "retention", Exit.KEPT, parts=[part])
    row = matrix.row_of(tmp_path, "embedded", "retention")
    assert row is not None
    page = matrix.write(tmp_path, [row], {}).read_text()
    assert "99.97 %" in page
    assert "held</small>" not in page, "of this gap no fault was held"
    assert "100.0 %" not in page


@pytest.mark.parametrize("exit_", [Exit.KEPT, Exit.BROKEN], ids=["kept", "broken"])
def test_a_row_of_a_busy_machine_says_so_whatever_came_of_it(tmp_path: Path, exit_: Exit) -> None:
    """Method: the control's nodes were starved as well."""
    verdict(tmp_path, "embedded", "rack-loss", Exit.KEPT)
    file = matrix.folder_of(tmp_path, "embedded", "rack-loss") / "verdict.json"
    values = json.loads(file.read_text())
    values["exit"] = int(exit_)
    for part, starved in zip(values["parts"], [None, "0 for 7 s", "2 for 5 s"], strict=True):
        part["starved"] = starved
    file.write_text(json.dumps(values))
    row = matrix.row_of(tmp_path, "embedded", "rack-loss")
    assert row is not None
    assert row.starved == "0 for 7 s; 2 for 5 s"
    page = matrix.write(tmp_path, [row], {}).read_text()
    assert "The machine was busy: 0 for 7 s; 2 for 5 s." in page


def test_settings_are_said_once_and_of_a_row_where_they_are_others(tmp_path: Path) -> None:
    """Method: one row has five brokers, and a setting that no other has; one was not made."""
    names = ["rack-loss", "retention", "throughput"]
    for name in names:
        mine = {"brokers": "5", "session": "45000"} if name == "throughput" else {}
        verdict(tmp_path, "embedded", name, Exit.KEPT, settings=SETTINGS | mine)
    found = [matrix.row_of(tmp_path, "embedded", name) for name in names]
    rows = [row for row in found if row is not None]
    rows.append(matrix.not_made(tmp_path, "embedded", "split-brain", "It crashed."))
    page = matrix.write(tmp_path, rows, {}).read_text()
    said = re.sub("<[^>]*>", "|", page[page.index("<main>") :])
    assert "|Settings, where a row has no others||acks all, profile lab, brokers 3." in said
    assert said.count("|Other settings are brokers 5, session 45000.|") == 1
    assert said.count("profile lab") == said.count("acks all") == said.count("brokers 3") == 1


def test_settings_that_all_have_need_no_column(tmp_path: Path) -> None:
    page = page_of(tmp_path, {("embedded", "rack-loss"): GROUNDS})
    assert "acks all, profile lab, brokers 3" in page
    assert "ther settings" not in page


@pytest.mark.parametrize(
    ("embedded", "theirs", "said"),
    [
        (0, 0, "So far: 0 of 3 on embedded; apache not begun."),
        (2, 0, "So far: 2 of 3 on embedded; apache not begun."),
        (3, 0, "So far: 3 of 3 on embedded; 0 of 2 on apache."),
        (1, 2, "So far: 1 of 3 on embedded; 2 of 2 on apache."),
        (3, 2, ""),
    ],
)
def test_a_page_says_how_far_it_is_until_it_is_whole(
    tmp_path: Path, embedded: int, theirs: int, said: str
) -> None:
    """A row that was not made is one: nothing comes of this scenario any more."""
    names = ["rack-loss", "retention", "split-brain"]
    rows = [matrix.not_made(tmp_path, "embedded", name, "") for name in names[:embedded]]
    rows += [matrix.not_made(tmp_path, "apache", name, "") for name in names[:theirs]]
    page = matrix.write(tmp_path, rows, {"embedded": 3, "apache": 2}).read_text()
    assert said in page
    assert ("So far" in page) == bool(said)


def test_two_at_once_are_one_too_many(tmp_path: Path) -> None:
    with (
        matrix.held(tmp_path),
        pytest.raises(LabError, match="another `prove --all` writes there"),
        matrix.held(tmp_path),
    ):
        pass
    with matrix.held(tmp_path):
        pass


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("thesis.tex", "Years of work"),
        ("embedded/rack-loss/notes.txt", "of somebody"),
        ("matrix.json", "[[1, 0], [0, 1]]"),
        ("matrix.json", '{"title": "a film"}'),
        ("matrix.json", "["),
        ("matrix.json", "{}"),
    ],
)
def test_somebody_s_files_are_not_written_among(
    tmp_path: Path, proofs: list[str], name: str, text: str
) -> None:
    file = tmp_path / "theirs" / name
    file.parent.mkdir(parents=True)
    file.write_text(text)
    before = sorted((tmp_path / "theirs").rglob("*"))
    with pytest.raises(LabError, match="Name a new or an empty folder by --output"):
        all_of(tmp_path / "theirs", [])
    assert sorted((tmp_path / "theirs").rglob("*")) == before
    assert file.read_text() == text
    assert proofs == []


def test_a_folder_is_known_again_however_early_it_was_left(
    tmp_path: Path, proofs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: interrupted before the first run, and amid it, whose files lie there then."""

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    def amid(_scenario: Any, _parameters: Any, folder: Path, **_: Any) -> None:
        folder.mkdir(parents=True)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(prove_all, "code_of", interrupted)
        with pytest.raises(KeyboardInterrupt):
            all_of(tmp_path, [])
    with monkeypatch.context() as patched:
        patched.setattr(prove_all, "prove", amid)
        with pytest.raises(KeyboardInterrupt):
            all_of(tmp_path, [])
    all_of(tmp_path, [])
    assert proofs == ["rack-loss", "retention", "split-brain"]


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three scenarios of which the second crashes; which of them were run. No cluster is made."""
    made: list[str] = []

    def prove(scenario: Any, _parameters: Any, folder: Path, **_: Any) -> None:
        made.append(scenario.name)
        if scenario.name == "retention":
            raise ZeroDivisionError("a slip in its steps")
        verdict(folder.parent.parent, folder.parent.name, scenario.name, Exit.KEPT)
        (folder / matrix.STAMP).unlink()  # it is not the run that gives it

    monkeypatch.setattr(prove_all, "prove", prove)
    monkeypatch.setattr(prove_all, "code_of", lambda _engine, name: f"code of {name}")
    monkeypatch.setattr(prove_all, "files_of", lambda _engine, _name: ())
    monkeypatch.setattr(possible, "look", lambda: Possibility(NAMESPACES))
    monkeypatch.setattr(prove_all, "SCENARIOS", ["rack-loss", "retention", "split-brain"])
    return made


def all_of(tmp_path: Path, said: list[str], *, control: bool = True) -> list[matrix.Row]:
    made = prove_all.prove_all(tmp_path, ["embedded"], control=control, say=said.append)
    assert made.page is not None
    assert made.page.exists()
    assert made.stopped is None
    return made.rows


def stopped(directory: Path) -> str:
    """Return why not all was run."""
    made = prove_all.prove_all(directory, ["embedded"], control=True, say=lambda _line: None)
    assert made.stopped is not None
    return made.stopped


@pytest.mark.parametrize(("control", "more"), [(True, ""), (False, " --no-control")])
def test_each_row_s_command_runs_that_row_again(
    tmp_path: Path, proofs: list[str], monkeypatch: pytest.MonkeyPatch, more: str, *, control: bool
) -> None:
    """Seen to fail: each row named the command of all of them."""
    commands: list[str] = []

    def prove(*_: Any, command: str, **__: Any) -> Any:
        commands.append(command)
        return SimpleNamespace(exit=Exit.NOT_MADE, verdict="It is not made.")

    monkeypatch.setattr(prove_all, "prove", prove)
    all_of(tmp_path, [], control=control)
    assert commands == [
        f"holdfast prove {name} --engine embedded{more}"
        for name in ("rack-loss", "retention", "split-brain")
    ]
    assert proofs == []


def test_all_under_another_profile_is_not_what_was_decided_under_the_first(
    tmp_path: Path, proofs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a row says under which profile it was kept, by its settings and its command.

    Method: the same folder under the lab's, under Kafka's, and under Kafka's again.
    """
    told: list[tuple[str, str]] = []
    proven = vars(prove_all)["prove"]

    def looked_at(scenario: Any, parameters: Any, *rest: Any, **options: Any) -> None:
        told.append((parameters.profile, options["command"]))
        proven(scenario, parameters, *rest, **options)

    monkeypatch.setattr(prove_all, "prove", looked_at)
    monkeypatch.setattr(prove_all, "SCENARIOS", ["split-brain"])
    for profile in ("lab", "kafka", "kafka"):
        said: list[str] = []
        prove_all.prove_all(tmp_path, ["embedded"], profile=profile, control=True, say=said.append)
    assert told == [
        ("lab", "holdfast prove split-brain --engine embedded"),
        ("kafka", "holdfast prove split-brain --engine embedded --profile kafka"),
    ]
    assert proofs == ["split-brain"] * 2
    assert said == ["[embedded 1 of 1] split-brain: kept already"]


def test_an_engine_with_zookeeper_has_the_scenarios_that_it_is_for(
    tmp_path: Path, proofs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bool] = []
    monkeypatch.setattr(apache, "find_home", lambda *, with_zookeeper: found.append(with_zookeeper))
    monkeypatch.setattr(apache, "version", lambda _home: (3, 9, 1))
    monkeypatch.setattr(prove_all, "SCENARIOS", ["rack-loss", "controller-down"])
    said: list[str] = []
    rows = prove_all.prove_all(tmp_path, ["apache-3.9"], control=True, say=said.append).rows
    assert proofs == [row.scenario for row in rows] == ["controller-down"]
    assert said[0] == "[apache-3.9 1 of 1] controller-down"
    assert set(found) == {True}
    assert rows[0].grounds is not None
    assert rows[0].grounds.engine_version == "3.9.1"


def test_all_goes_on_where_it_ended_and_over_what_crashes(
    tmp_path: Path, proofs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    rows = all_of(tmp_path, said)
    assert proofs == ["rack-loss", "retention", "split-brain"]
    assert [row.word for row in rows] == ["kept", "not made", "kept"]
    assert "ZeroDivisionError: a slip in its steps" in rows[1].verdict
    assert "in prove" in (tmp_path / "embedded" / "retention" / CRASH).read_text()
    assert matrix.worst(rows) is Exit.NOT_MADE
    assert 'href="embedded/retention' not in (tmp_path / matrix.PAGE).read_text()
    proofs.clear()
    all_of(tmp_path, said)
    assert proofs == ["retention"]
    assert "[embedded 1 of 3] rack-loss: kept already" in said
    proofs.clear()
    monkeypatch.setattr(prove_all, "code_of", lambda _engine, name: f"another code of {name}")
    all_of(tmp_path, said)
    assert proofs == ["rack-loss", "retention", "split-brain"]


def test_all_says_how_far_it_is_after_each_run(
    tmp_path: Path, proofs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: who looks meanwhile sees what there is, what was decided before included.

    Method: the last of three was decided before; the page as it is when each of the others begins.
    """
    monkeypatch.setattr(prove_all, "SCENARIOS", ["split-brain"])
    all_of(tmp_path, [])
    names = ["rack-loss", "one-broker-down", "split-brain"]
    monkeypatch.setattr(prove_all, "SCENARIOS", names)
    pages: list[str] = []
    proven = vars(prove_all)["prove"]

    def looked_at(*told: Any, **options: Any) -> None:
        pages.append((tmp_path / matrix.PAGE).read_text())
        proven(*told, **options)

    monkeypatch.setattr(prove_all, "prove", looked_at)
    all_of(tmp_path, [])
    assert proofs == ["split-brain", "rack-loss", "one-broker-down"]
    assert ["So far: 1 of 3 on embedded." in page for page in pages] == [True, False]
    assert "So far: 2 of 3 on embedded." in pages[1]
    assert all('href="embedded/split-brain/report.html"' in page for page in pages)
    whole = (tmp_path / matrix.PAGE).read_text()
    assert "So far" not in whole
    places = [whole.index(f'href="embedded/{name}/') for name in names]
    assert places == sorted(places)


def test_a_run_s_own_clusters_say_how_its_links_were_broken(
    tmp_path: Path, proofs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: proxies that came into a run are written down, and end it where namespaces can be had.

    Method: of two clusters of a run one has namespaces, the other one proxies; no node is started.
    """
    proven = vars(prove_all)["prove"]

    def apart(scenario: Any, parameters: Any, folder: Path, **options: Any) -> None:
        for part, how in {"main": NAMESPACES, "control": PROXIES}.items():
            cluster = folder / part / "cluster"
            LocalCluster.create(cluster, brokers=1, network=Possibility(how), port=0)
        proven(scenario, parameters, folder, **options)

    monkeypatch.setattr(prove_all, "prove", apart)
    monkeypatch.setattr(prove_all, "SCENARIOS", ["split-brain"])
    (row,) = all_of(tmp_path, [])
    assert row.grounds is not None
    assert row.grounds.network == PROXIES
    assert row.grounds.python == platform.python_version()
    assert row.grounds.librdkafka == confluent_kafka.libversion()[0]
    all_of(tmp_path, [])
    assert proofs == ["split-brain"] * 2
    monkeypatch.setattr(possible, "look", lambda: Possibility(PROXIES, "Denied."))
    all_of(tmp_path, [])
    assert proofs == ["split-brain"] * 2


def test_without_an_apache_kafka_that_is_said_before_anything_is_run(
    tmp_path: Path, proofs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(ClusterError, match="No Apache Kafka"):
        prove_all.prove_all(tmp_path, ["embedded", "apache"], control=True, say=proofs.append)
    assert proofs == []


FOUR = ["disk-lost", "rack-loss", "one-broker-down", "split-brain"]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of code: a file for each of four scenarios, and one that all of them take."""
    folder = tmp_path / "src"
    folder.mkdir()
    for name in (*FOUR, "all"):
        (folder / f"{name}.py").write_text("first")
    look = partial(fingerprint, source=folder)
    monkeypatch.setattr(background, "written", partial(background.written, source=folder))
    monkeypatch.setattr(prove_all, "code_of", lambda _engine, name: look([f"{name}.py", "all.py"]))
    monkeypatch.setattr(prove_all, "files_of", lambda _engine, name: (f"{name}.py", "all.py"))
    monkeypatch.setattr(prove_all, "SCENARIOS", FOUR)
    return folder


def edit(file: Path) -> None:
    file.write_text("second")


def edit_and_undo(file: Path) -> None:
    """As a stash does: the file's time alone is another one."""
    before = file.stat()
    file.write_text("first")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))


@pytest.mark.parametrize(
    ("file", "change", "made"),
    [
        ("all.py", edit, 0),
        ("rack-loss.py", edit, 0),
        ("all.py", edit_and_undo, 0),
        ("all.py", Path.unlink, 0),
        ("split-brain.py", edit, 2),  # which nothing takes but the last one
    ],
)
def test_all_stops_once_the_code_is_changed_under_it(
    tmp_path: Path,
    proofs: list[str],
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    change: Callable[[Path], None],
    made: int,
) -> None:
    """Goal: no verdict is stamped with code that it is not of.

    Method: the first of four was decided before; a file is changed amid the second, and as many
    are made, that one included.
    """
    out = tmp_path / "out"
    monkeypatch.setattr(prove_all, "SCENARIOS", FOUR[:1])
    (first,) = all_of(out, [])
    monkeypatch.setattr(prove_all, "SCENARIOS", FOUR)
    proofs.clear()
    proven = vars(prove_all)["prove"]

    def amid(scenario: Any, *told: Any, **options: Any) -> Any:
        outcome = proven(scenario, *told, **options)
        if scenario.name == "rack-loss":
            change(source / file)
        return outcome

    monkeypatch.setattr(prove_all, "prove", amid)
    told = stopped(out)
    assert f"{file} was changed while `prove --all` ran" in told
    assert f"--output {out} goes on" in told
    assert proofs == FOUR[1 : 1 + max(made, 1)]
    rows = json.loads((out / matrix.MATRIX).read_bytes())
    assert [row["scenario"] for row in rows] == FOUR[: 1 + made]
    assert all(row["code"] for row in rows)
    assert rows[0]["code"] == first.code
    stamped = [name for name in FOUR if (out / "embedded" / name / matrix.STAMP).exists()]
    assert stamped == FOUR[: 1 + made]


def test_a_crash_amid_a_change_is_no_crash(
    tmp_path: Path, proofs: list[str], source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def halves(*_: Any, **__: Any) -> None:
        (source / "all.py").write_text("second")
        raise ImportError("of two codes")

    monkeypatch.setattr(prove_all, "prove", halves)
    assert stopped(tmp_path / "out").startswith("embedded disk-lost: all.py was changed")
    assert proofs == []
    assert not (tmp_path / "out" / "embedded" / "disk-lost").exists()  # it is not told as a crash


def test_another_apache_kafka_meanwhile_stops_it_too(
    tmp_path: Path, proofs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter(["code of 4.3.1"] * 4 + ["code of 4.4.0"])
    monkeypatch.setattr(prove_all, "code_of", lambda _engine, _name: next(looks))
    told = stopped(tmp_path / "out")
    assert told.startswith("embedded rack-loss: the Apache Kafka was changed")
    assert proofs == ["rack-loss"]


@pytest.mark.slow
def test_a_verdict_is_of_the_code_that_its_scenario_runs() -> None:
    """Each has a module of its own, and may take other steps."""
    names = ("retention", "rack-loss", "split-brain")
    assert len({prove_all.code_of("embedded", name) for name in names}) == 3
    assert prove_all.code_of("embedded", names[0]) == fingerprint(by_scenario(names[0]))


def test_a_verdict_on_apache_kafka_ends_with_what_its_clients_speak(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: only what our nodes alone run has no part in it."""
    named: list[tuple[str, ...]] = []

    def fingerprint(paths: tuple[str, ...]) -> str:
        named.append(paths)
        return "code"

    monkeypatch.setattr(background, "fingerprint", fingerprint)
    monkeypatch.setattr(apache, "find_home", lambda *, with_zookeeper: f"home {with_zookeeper}")
    monkeypatch.setattr(apache, "version", lambda home: (3, 9, 1) if "True" in home else (4, 3, 1))
    assert prove_all.code_of("apache", "write-anomaly") == f"code of 4.3.1 {NO_JARS}"
    assert prove_all.code_of("apache-3.9", "controller-down") == f"code of 3.9.1 {NO_JARS}"
    rooms = {path.split("/")[1] for paths in named for path in paths}
    assert {"wire", "config", "clients", "judge", "lab"} <= rooms
    assert not {"core", "log", "node", "runtime"} & rooms
    assert all("holdfast/cluster/zookeeper.py" in paths for paths in named)
