"""Goal: a report says what the run showed, stands alone, and lets nothing in unescaped.

Method: pages made from made-up histories are parsed; what is looked for is text and structure.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.judge.histories import Story
from tests.lab import made_up

from holdfast.judge.checker import Evidence, judge
from holdfast.judge.history import Acknowledged, DeleteRecords, Event, Fault, Send
from holdfast.judge.series import BUCKETS_MAX
from holdfast.judge.verdict import Anomaly, Excuse, Expiry
from holdfast.lab.report import Check, PartReport, ReportData
from holdfast.lab.report.page import render_page, write_report

VOID = {"meta", "br", "hr", "img", "input", "link", "line", "rect", "path"}


class Parsed(HTMLParser):
    """Checks that elements are closed in order, and collects attributes and visible text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.header: list[str] = []
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
            if "header" in self.open:
                self.header.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    @property
    def first_screen(self) -> str:
        return " ".join(" ".join(self.header).split())


@cache
def text_of(lost: int) -> str:
    """The made-up report as HTML; made once for all who only read it."""
    return render_page(made_up.report(lost=lost))


@cache
def page_of(lost: int) -> Parsed:
    return Parsed(text_of(lost))


def whole(evidence: Evidence | None, *, kept: bool | None = False) -> ReportData:
    """A report of one part."""
    part = PartReport(title="main", headline="", kept=kept, evidence=evidence,
                      checks=[Check(name="P0", expected="a", seen="b", kept=False)])  # fmt: skip
    return ReportData(title="t", summary="", kept=kept, verdict="", promise="what is promised",
                      command="", parts=[part], forbidden=frozenset({"lost"}))  # fmt: skip


WORDS = [
    "leader none",
    "SIGKILL node 1",
    "foo-1: leader 1 → 2, epoch 1",
    "foo-0: ISR {0,1} → {0}",
    "was acknowledged at offset",
    "<whole>",
    "<i>x</i>",
    "holdfast prove one-broker-down --config 'a=<b>'",
    "What this run does",
    "Only leadership moves.",
    "Table behind its log",
    "driver killed",
    "1 of 2 as they must be",
    "The axis ends at 80/s, or nothing else could be seen.",
    "Why a partition with a leader stands still",
    "P0: led by node 0, nothing acknowledged from 4.0 to 7.0 s",
    "Settings, where they differ from the first part's 1 settings acks 1",
    "It must be broken, with lost events, or the run proves nothing.",
]


def test_a_page_is_whole_and_says_what_was_found() -> None:
    page = page_of(3)
    for words in WORDS:
        assert words in page.text, words


def test_nothing_is_fetched_from_anywhere() -> None:
    text, page = text_of(0), page_of(0)
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", text)
    links = [value for _tag, name, value in page.attributes if name in {"src", "href"}]
    assert [each for each in links if not each.startswith("#part-")] == []


FIRST_SCREEN = [
    "Promise broken",
    "Broken: 3 lost.",
    "Promised Nothing acknowledged is lost: each event is on every in-sync replica.",
    "Broken on purpose One broker down: SIGKILL of node 1, SIGKILL of the Spark driver.",
    "Control: acks=1: SIGKILL of node 1.",
    "One broker down ✗ Promise broken ✗ 1 of 2 checks failed",
    "in the log: ",
    "✗ 3 lost",
    "Control: acks=1 ✓ control failed, as it must",
    "✗ 20 lost",
    "Expired None",
    "2 parts",
]


def test_the_first_screen_speaks_of_all_parts() -> None:
    said = page_of(3).first_screen
    for words in FIRST_SCREEN:
        assert words in said, (words, said)


def test_a_whole_log_is_no_good_news_beside_a_failed_check() -> None:
    """A table that lacks a row stood under "exactly once", in green."""
    first, second = re.split(r'<section class="part', text_of(0))[1:]
    assert '<b class="bad">✗ 1 of 2</b>' in first
    assert '<b class="good">exactly once' not in first
    assert "observed in the log" in first
    assert "observed in the log" not in second, "a control"


def test_each_part_has_its_own_headline_figures_and_charts() -> None:
    text = text_of(3)
    first, second = re.split(r'<section class="part', text)[1:]
    assert "All is well." in first
    assert "Twenty were lost." in second
    assert '<b class="bad">✗ 3</b>' in first
    assert '<b class="bad">✗ 20</b>' in second
    assert second.startswith(' control"')
    for part in (first, second):
        assert "acknowledged events a second" in part
        assert 'aria-label="Leaders and in-sync replicas' in part


def test_a_control_that_did_not_fail_is_not_dressed_as_one_that_did() -> None:
    report = made_up.report()
    control = replace(report.parts[1], as_it_must=False)
    text = Parsed(render_page(replace(report, parts=[report.parts[0], control]))).first_screen
    assert "? control did not fail as it must" in text


def test_what_expired_is_told_with_its_reason() -> None:
    evidence = made_up.run()
    first, *others = evidence.judgement.partitions
    asked = DeleteRecords(at_ms=1, wall_ms=1, process="lab", topic="foo", partition=0, offset=12)
    expiry = Expiry(excuse=Excuse.DELETED, event=asked, count=12)
    judgement = replace(
        evidence.judgement,
        partitions=(
            replace(first, expiries=(expiry,), counts=replace(first.counts, expired=12)),
            *others,
        ),
    )
    page = Parsed(render_page(whole(replace(evidence, judgement=judgement), kept=True)))
    assert "Expired 12 expired as allowed (12 by DeleteRecords before offset 12)" in (
        page.first_screen
    )


def test_what_is_not_decided_is_said_with_its_reason() -> None:
    evidence = judge(Story().send(0).ack(0, 0).events)
    page = Parsed(render_page(whole(evidence, kept=None)))
    assert "? Not decided" in page.first_screen
    assert "lost: ?" in page.first_screen
    assert "Expired not decided: nobody knows what the log holds." in page.first_screen
    assert f"Not decided: {evidence.judgement.undecided[0]}" in page.text


def test_many_reasons_are_told_by_a_few() -> None:
    evidence = judge(Story().send(0).ack(0, 0).events)
    (only,) = evidence.judgement.partitions
    judgement = replace(
        evidence.judgement,
        partitions=tuple(replace(only, partition=number) for number in range(30)),
    )
    text = Parsed(render_page(whole(replace(evidence, judgement=judgement), kept=None))).text
    assert text.count("Not decided: foo-") == 8
    assert "And 22 more like these." in text


def test_drawings_have_signs_and_words_for_whoever_sees_no_colours() -> None:
    page = page_of(3)
    kinds = {value for tag, name, value in page.attributes if tag in {"rect", "path", "line"}
             and name == "class"}  # fmt: skip
    assert {"line s0", "line s1", "leaderless", "noleader", "leads", "insync", "outsync",
            "node-down", "standstill", "cross anomaly", "peak"} <= kinds  # fmt: skip
    labels = {value for _tag, name, value in page.attributes if name == "aria-label"}
    begins = {label.split(" over time")[0].split(":")[0] for label in labels}
    assert {
        "What was done and went wrong",
        "Acknowledged events a second",
        "Latency",
        "Table behind its log",
        "events a second over bytes of an event. up",
        "MB a second over seconds since the very first event. all",
        "Leaders and in-sync replicas",
        "Nodes",
        "as it must be",
        "not as it must be",
    } == begins


def test_the_cursor_gets_the_same_values() -> None:
    page = page_of(0)
    rates, latencies, behind, *_ = (json.loads(t) for t in page.scripts if t.startswith("{"))
    assert rates["names"] == ["P0", "P1", "P2"]
    assert len(rates["rows"][0]) == 4
    assert latencies["names"] == ["max", "p99", "p50"]
    assert max(row[1] for row in behind["rows"]) == 40 * 39


@pytest.mark.parametrize(
    ("kept", "words"), [(True, "Promise kept"), (False, "Promise broken"), (None, "Not decided")]
)
def test_the_verdict_stands_first(kept: bool | None, words: str) -> None:
    text = Parsed(render_page(whole(None, kept=kept))).first_screen
    assert 0 < text.index(words) < text.index("what is promised")


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
    assert "What had to be seen" in Parsed(render_page(whole(judge(events)))).text


def test_a_forbidden_anomaly_is_marked_and_an_allowed_one_differs() -> None:
    data = whole(made_up.run(lost=2))
    forbidden = render_page(data)
    allowed = render_page(replace(data, forbidden=frozenset()))
    assert '<td class="n bad">✗ 2</td>' in forbidden
    assert '<td class="n warn">2</td>' in allowed
    assert "(not forbidden here)" in Parsed(allowed).text
    assert "cross anomaly allowed" in allowed
    assert "cross anomaly allowed" not in forbidden
    assert '<span class="bad">✗ 2 lost</span>' in forbidden
    assert "<span>2 lost</span>" in allowed


def test_what_no_chart_can_mark_is_said() -> None:
    text = Parsed(render_page(whole(made_up.run(lost=40)))).text
    assert "counted beside them: 20 more lost." in text
    assert "and 28 more like these in the history" in text


def test_forbidden_kinds_come_first() -> None:
    evidence = made_up.run(lost=2)
    (lost, *_others) = evidence.judgement.findings
    first, *others = evidence.judgement.partitions
    doubled = replace(lost, anomaly=Anomaly.DUPLICATED)
    with_both = replace(first, findings=(doubled,), anomalies={Anomaly.DUPLICATED: 1})
    judgement = replace(evidence.judgement, partitions=(with_both, *others))
    text = Parsed(render_page(whole(replace(evidence, judgement=judgement)))).text
    wrong = text[text.index("What went wrong") :]
    assert wrong.index("✗ 2 lost") < wrong.index("! 1 duplicated")


def test_data_for_the_script_can_not_end_it() -> None:
    story = made_up.MadeUp()
    for name in ("</script><b>", "other"):
        for number in range(3):
            common = {"topic": name, "partition": 0, "id": f"{name}:{number}"}
            story.add(Send, 1000.0 + 300 * number, "p", digest="d", size=1, **common)
            story.add(Acknowledged, 1001.0 + 300 * number, "p", offset=number, **common)
    text = render_page(whole(story.evidence()))
    assert "</script><b>" not in text
    (rates, *_) = (json.loads(each) for each in Parsed(text).scripts if each.startswith("{"))
    assert "</script><b>-0" in rates["names"]


def test_the_report_of_a_long_run_stays_small() -> None:
    evidence = made_up.run(lost=40)
    begin_ms = evidence.timeline.begin_ms
    points = tuple(
        replace(
            evidence.points[index % 20],
            at_ms=begin_ms + 200 * index,
            acknowledged={("foo", number): float(index % 97) for number in range(6)},
        )
        for index in range(BUCKETS_MAX)  # as many as the judge ever gives
    )
    page = render_page(whole(replace(evidence, points=points)))
    assert len(page.encode()) < 1_000_000


def test_a_report_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(path, made_up.report())
    assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
