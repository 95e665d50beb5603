"""Goal: a report says what the run showed, stands alone, and lets nothing in unescaped.

Method: pages made from hand-made histories are parsed; what is looked for is text and structure.
"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from holdfast.judge.checker import Evidence, judge
from holdfast.judge.history import Event, Fault, IsrChange, LeaderChange, Note
from holdfast.lab.report import Check, PartReport, ReportData, Table
from holdfast.lab.report.drawing import Drawing
from holdfast.lab.report.page import render_page, write_report
from holdfast.testing.histories import Story

VOID = {"meta", "br", "hr", "img", "input", "link", "line", "rect", "path"}


class Parsed(HTMLParser):
    """Checks that elements are closed in order, and collects attributes and visible text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def history(*, lost: bool = True) -> list[Event]:
    story = Story()
    for number in range(40):
        story.send(number).ack(number, number).pause(20)
    numbers = [number for number in range(40) if not (lost and number >= 38)]
    events = story.final(*numbers).events
    common = {"wall_ms": 1_700_000_000_000, "process": "lab"}
    place = {"topic": "foo", "partition": 0}
    events += [
        LeaderChange(at_ms=1000.5, leader=1, epoch=0, **common, **place),  # type: ignore[arg-type]
        IsrChange(at_ms=1000.6, isr=(1, 0), replicas=(1, 0), **common, **place),  # type: ignore[arg-type]
        Fault(at_ms=1200.0, action="KILL", node=1, **common),  # type: ignore[arg-type]
        LeaderChange(at_ms=1400.0, leader=0, epoch=1, **common, **place),  # type: ignore[arg-type]
        IsrChange(at_ms=1400.1, isr=(0,), replicas=(1, 0), **common, **place),  # type: ignore[arg-type]
        Fault(at_ms=1500.0, action="start", node=1, **common),  # type: ignore[arg-type]
        Note(at_ms=1600.0, text="<b>a note</b> & more", **common),  # type: ignore[arg-type]
    ]
    return sorted(events, key=lambda event: event.at_ms)


def data(evidence: Evidence | None, *, kept: bool | None = False) -> ReportData:
    return ReportData(
        title="one-broker-down <1>",
        summary="A summary.",
        kept=kept,
        verdict="Broken: 2 events.",
        promise="Nothing acknowledged is lost.",
        command="holdfast prove one-broker-down --config 'a=<b>'",
        parts=[
            PartReport(
                title="main",
                headline="2 lost.",
                kept=kept,
                evidence=evidence,
                checks=[Check(name="P0", expected="leader 0", seen="leader none", kept=False)],
                settings={"acks": "all"},
            ),
            PartReport(
                title="The table",
                headline="What Spark wrote.",
                kept=True,
                tables=[
                    Table(title="Rows", header=["name", "count"], rows=[["<i>x</i>", "1,200"]])
                ],
                checks=[Check(name="rows", expected="40", seen="40", kept=True)],
            ),
        ],
        forbidden=frozenset({"lost"}),
    )


WORDS = [
    "Promise broken",
    "Nothing acknowledged is lost.",
    "at most once",
    "acknowledged, of 40",
    "leader none",
    "SIGKILL node 1",
    "foo-0: leader 1 → 0, epoch 1",
    "foo-0: ISR {1,0} → {0}",
    "What Spark wrote.",
    "p:38 was acknowledged at offset 38",
    "<b>a note</b> & more",
    "<i>x</i>",
    "holdfast prove one-broker-down --config 'a=<b>'",
]


def test_a_page_is_whole_and_says_what_was_found() -> None:
    page = Parsed(render_page(data(judge(history()))))
    for words in WORDS:
        assert words in page.text, words


def test_nothing_is_fetched_from_anywhere() -> None:
    text = render_page(data(judge(history())))
    page = Parsed(text)
    assert not re.search(r"https?:|//[a-z]|@import|url\(", text)
    assert not [found for found in page.attributes if found[1] in {"src", "href"}]


def test_drawings_show_faults_leaders_and_rates() -> None:
    page = Parsed(render_page(data(judge(history()))))
    kinds = {value for tag, name, value in page.attributes if tag in {"rect", "path", "line"}
             and name == "class"}  # fmt: skip
    assert {"line", "leaderless", "noleader", "leads", "insync", "outsync", "node-down"} <= kinds
    labels = {value for _tag, name, value in page.attributes if name == "aria-label"}
    assert labels == {
        "faults",
        "acknowledged events a second over time",
        "latency over time",
        "leaders and in-sync replicas over time",
        "nodes over time",
    }


def test_a_point_alone_is_drawn() -> None:
    drawing = Drawing(judge(history()).timeline, 100, "points")
    drawing.path([(1, 2), None, (3, 4), (5, 6), None, None, (7, 8)], "line")
    dot = "m-1.5 0h3"
    assert f'd="M1.0 2.0 {dot} M3.0 4.0 L5.0 6.0 M7.0 8.0 {dot}"' in drawing.render()


def test_the_cursor_gets_the_same_values() -> None:
    page = Parsed(render_page(data(judge(history()))))
    rates, latencies = (json.loads(text) for text in page.scripts if text.startswith("{"))
    assert rates["names"] == ["partition 0"]
    assert len(rates["rows"][0]) == 2
    assert latencies["names"] == ["max", "p99", "p50"]


@pytest.mark.parametrize(
    ("kept", "words"), [(True, "Promise kept"), (False, "Promise broken"), (None, "Undecided")]
)
def test_the_verdict_stands_first(kept: bool | None, words: str) -> None:
    text = Parsed(render_page(data(None, kept=kept))).text
    assert 0 < text.index(words) < text.index("The promise, stated before the run")


@pytest.mark.parametrize(
    "events",
    [
        [],
        Story().final().events,
        Story().send(0).refuse(0).events,
        Story().send(0).ack(0, None).events,
        [Fault(at_ms=1, wall_ms=1, process="lab", action="KILL", node=1)],
    ],
    ids=["nothing", "an empty log", "one refusal", "no offset, no read", "a fault alone"],
)
def test_a_poor_history_makes_a_page_too(events: list[Event]) -> None:
    assert "What had to be seen" in Parsed(render_page(data(judge(events)))).text


def test_a_forbidden_anomaly_is_marked_and_an_allowed_one_differs() -> None:
    evidence = judge(history())
    forbidden = render_page(data(evidence))
    allowed = render_page(
        ReportData(title="t", summary="", kept=True, verdict="", promise="", command="",
                   parts=[PartReport(title="t", headline="", kept=True, evidence=evidence)])
    )  # fmt: skip
    assert '<td class="n bad">2</td>' in forbidden
    assert '<td class="n warn">2</td>' in allowed


def test_a_report_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(path, data(judge(history())))
    assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
