"""Goal: `holdfast watch` shows what is, in 80 columns, and what came before it.

Rates, elections and time without a leader are reckoned from earlier looks.

Method: samples by hand; lines compared whole where they are what people read.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.cli.watch.samples import Partition, Sample
from holdfast.cli.watch.screen import PARTITIONS_MAX, WIDTH, Memory, clock, frame

WELL = Partition(leader=1, epoch=0, isr=(1, 0, 2), replicas=(1, 0, 2), end=1000)
FIRST = Sample(
    at_s=1000.0,
    nodes={0: "running", 1: "running", 100: "running"},
    active=(100, 3),
    partitions={("foo", 0): WELL},
)


def after(seconds: float, partition: Partition, **changes: object) -> Sample:
    values = {"at_s": FIRST.at_s + seconds, "partitions": {("foo", 0): partition}, **changes}
    return replace(FIRST, **values)  # type: ignore[arg-type]


def shown(*samples: Sample) -> list[str]:
    memory = Memory()
    for sample in samples:
        memory.take(sample)
    return frame(samples[-1], memory)


def test_all_is_well() -> None:
    assert shown(FIRST, after(2, replace(WELL, end=1400))) == [
        f"{clock(1002)}  controller 100 is active, epoch 3",
        "3 of 3 nodes run",
        "",
        "PARTITION                LEADER  EPOCH  IN SYNC            END   PER S NO LEADER",
        "foo-0                         1      0  1,0,2            1,400     200         -",
    ]


def test_a_leader_is_gone_and_replaced() -> None:
    gone = replace(WELL, leader=-1, epoch=1, isr=(0, 2), end=None)
    back = replace(WELL, leader=0, epoch=2, isr=(0, 2), end=1200)
    lines = shown(
        FIRST,
        after(1, gone, nodes={0: "running", 1: "dead", 100: "running"}),
        after(3, back, nodes={0: "running", 1: "dead", 100: "running"}),
    )
    assert lines[1] == "2 of 3 nodes run; 1 dead"
    assert lines[4] == (
        "foo-0                         0      2  0,2 (-1)         1,200      67     2.0 s"
    )
    assert lines[-3:] == [
        "ELECTIONS, the last first",
        f"{clock(1003)}  foo-0: none → 0, epoch 2",
        f"{clock(1001)}  foo-0: 1 → none, epoch 1",
    ]


def test_another_controller_broken_links_and_groups() -> None:
    lines = shown(
        FIRST,
        after(1, WELL, active=(101, 4), links=["1 → 0"], lags={"readers": 12_000, "lost": None}),
    )
    assert f"{clock(1001)}  controller 100 → 101, epoch 4" in lines
    assert lines[lines.index("BROKEN LINKS") + 1] == "1 → 0"
    assert f"{'readers':<52}{'12,000':>12}" in lines
    assert f"{'lost':<52}{'-':>12}" in lines
    assert shown(replace(FIRST, active=None))[0].endswith("no controller is active")


def test_what_is_wrong_comes_first_and_no_line_is_too_long() -> None:
    many = {("a-topic-with-a-name-that-is-far-too-long", n): WELL for n in range(40)}
    bad = replace(WELL, isr=(1,), replicas=tuple(range(1, 30)))
    lines = shown(replace(FIRST, partitions={**many, ("z", 0): bad}))
    assert lines[4].startswith("z-0 ")
    assert lines[4 + PARTITIONS_MAX] == f"and {41 - PARTITIONS_MAX} more"
    assert max(map(len, lines)) <= WIDTH


def test_without_partitions_that_is_said() -> None:
    assert shown(replace(FIRST, partitions={}))[-1] == "none: no topics, or no broker answers"
