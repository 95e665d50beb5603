"""Goal: each rule of the judge is needed, in each of its parts.

Method: the rules are broken one by one, by exchanging text of their source, and the histories of
`judge_stories` must notice each time.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from tests.judge.histories import Story
from tests.judge.judge_stories import BAD, GOOD, UNDECIDED, anomalies, clean
from tests.judge.test_judge_compaction import CASES, COMPACTED, REPLICAS

from holdfast.judge.checker import Checker, judge


def mutants() -> Iterator[tuple[str, str, str]]:
    """Yield module, rule and bug of each row of `mutants.txt`."""
    module, rule = "", ""
    for line in (Path(__file__).parent / "mutants.txt").read_text().splitlines():
        text = line[2:].replace("\\n", "\n")
        if line.startswith("["):
            module = line[1:-1]
        elif line.startswith("-"):
            rule = text
        elif line.startswith("+"):
            yield module, rule, text


ROWS = list(mutants())


@pytest.mark.parametrize(
    ("module", "rule", "bug"), ROWS, ids=[f"{m}: {a.strip()} -> {b.strip()}" for m, a, b in ROWS]
)
def test_a_broken_rule_is_noticed(
    module: str, rule: str, bug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = import_module(f"holdfast.judge.{module}")
    source = inspect.getsource(real)
    assert source.count(rule) == 1, "the rule was rewritten: rewrite its mutant"
    broken = types.ModuleType(f"{real.__name__}_broken")
    monkeypatch.setitem(sys.modules, broken.__name__, broken)
    exec(compile(source.replace(rule, bug), "mutant", "exec"), broken.__dict__)
    replace_everywhere(real, broken, monkeypatch)
    assert wrong_somewhere() or wrong_one_by_one(monkeypatch)


def replace_everywhere(
    real: types.ModuleType, broken: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let the judge's modules use what the broken one defines."""
    for name, value in vars(real).items():
        if getattr(value, "__module__", None) != real.__name__:
            continue
        for user in [
            each for key, each in sys.modules.items() if key.startswith("holdfast.judge.")
        ]:
            if user is not broken and getattr(user, name, None) is value:
                monkeypatch.setattr(user, name, getattr(broken, name))


def wrong_somewhere() -> bool:
    """Say whether the judge errs, or stumbles, over any of the histories."""
    early = Story().send(0, 1).ack(0, 0).ack(1, 1).read(0, 0, by="first").end(0, 1, by="first")
    rows = [(story(), expected) for _, story, expected in BAD]
    rows += [(story(), {}) for _, story in GOOD]
    rows += [(clean(), {}), (early.final(0, 1), {})]
    try:
        if any(anomalies(story) != expected for story, expected in rows):
            return True
        if any(is_wrong_of_compaction(story(), texts) for _, story, texts in REPLICAS):
            return True
        for _, story, expected, replaced in CASES:
            excused = judge(story().events).judgement.expired.get(COMPACTED, 0)
            if anomalies(story()) != expected or excused != replaced:
                return True
        for _, story, _ in UNDECIDED:
            if anomalies(story()) or len(judge(story().events).judgement.undecided) != 1:
                return True
        return not all(judge(story().events).judgement.decided for _, story in GOOD)
    except (AttributeError, AssertionError, IndexError, TypeError, ValueError):
        return True


def is_wrong_of_compaction(story: Story, texts: list[str]) -> bool:
    findings = judge(story.events).judgement.findings
    return [finding.text for finding in findings] != texts


def wrong_one_by_one(monkeypatch: pytest.MonkeyPatch) -> bool:
    """Say the same where the judge takes each delivery alone, as it does where some are odd."""
    monkeypatch.setattr(Checker, "_extend", lambda *_: False)
    return wrong_somewhere()


def test_the_rules_as_they_stand_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not wrong_somewhere()
    assert not wrong_one_by_one(monkeypatch)
