"""kafka-features' words: held against what Apache Kafka 4.3's own tool said."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.cli.features import METADATA_VERSIONS, described, level_text, outcome_text
from holdfast.wire.administration import Feature

Run = Callable[..., Any]
ELR = "eligible.leader.replicas.version"


def test_the_lines_of_describe() -> None:
    """Goal: Kafka's text, padding included. Method: copied from its own tool's output."""
    found = [
        Feature(name=ELR, low=0, high=1, level=1),
        Feature(name="metadata.version", low=7, high=30, level=30),
    ]
    gap = " " * 16
    elr, metadata = described(25, found)
    assert elr == (
        f"Feature: {ELR}{' ' * 10}SupportedMinVersion: 0{gap}SupportedMaxVersion: 1{gap}"
        f"FinalizedVersionLevel: 1{gap}Epoch: 25"
    )
    assert metadata == (
        f"Feature: metadata.version{' ' * 26}SupportedMinVersion: 3.3-IV3          "
        "SupportedMaxVersion: 4.3-IV0          FinalizedVersionLevel: 4.3-IV0          Epoch: 25"
    )


@pytest.mark.parametrize(
    ("verb", "level", "error", "dry_run", "text"),
    [
        ("upgrade", 1, None, False, f"{ELR} was upgraded to 1."),
        ("upgrade", 1, None, True, f"{ELR} can be upgraded to 1."),
        ("downgrade", 0, None, False, f"{ELR} was downgraded to 0."),
        ("disable", 0, None, False, f"{ELR} was disabled."),
        ("upgrade", 7, "Why.", False, f"Could not upgrade {ELR} to 7. Why."),
        ("downgrade", 2, "Why.", True, f"Can not downgrade {ELR} to 2. Why."),
    ],
)
def test_sentences(verb: str, level: int, error: str | None, dry_run: bool, text: str) -> None:
    """Goal: Kafka's sentences. Method: as above."""
    assert outcome_text(verb, ELR, level, error, dry_run=dry_run) == text


def test_names_of_metadata_versions() -> None:
    """Goal: levels have Kafka's names, unknown ones their number. Method: both ends, and beyond."""
    assert level_text("metadata.version", 25) == "4.0-IV3"
    assert level_text("metadata.version", 7 + len(METADATA_VERSIONS)) == "31"
    assert level_text("metadata.version", 0) == "0"
    assert level_text(ELR, 7) == "7"


def test_levels_go_down_and_up(run: Run, bootstrap: str) -> None:
    """Goal: each verb does what it says. Method: on a running cluster; seen to end in an
    EncodeError while a downgrade was also sent as the flag that version 0 had.
    """
    flags = ("--bootstrap-server", bootstrap)

    def level() -> int:
        found = json.loads(run("features", "describe", "--json", *flags).output)["features"]
        return next(int(each["level"]) for each in found if each["name"] == ELR)

    def wait_for(wanted: int) -> None:  # a broker's image is a moment behind the controller
        deadline = time.monotonic() + 20
        while level() != wanted:
            assert time.monotonic() < deadline

    before = level()
    for arguments, said, then in [
        (("downgrade", "--feature", f"{ELR}=0", "--dry-run"), "can be downgraded to 0", before),
        (("downgrade", "--feature", f"{ELR}=0"), "was downgraded to 0", 0),
        (("upgrade", "--feature", f"{ELR}=1"), "was upgraded to 1", 1),
        (("disable", "--feature", ELR), "was disabled", 0),
        (("upgrade", "--feature", f"{ELR}=1"), "was upgraded to 1", 1),
    ]:
        outcome = run("features", *arguments, *flags)
        assert (outcome.status, outcome.output) == (0, f"{ELR} {said}.\n")
        wait_for(then)


def test_a_level_that_is_refused(run: Run, bootstrap: str) -> None:
    """Goal: the refusal's reason, and exit status 1. Method: a level that nobody has."""
    outcome = run("features", "upgrade", "--feature", f"{ELR}=9", "--bootstrap-server", bootstrap)
    assert outcome.status == 1
    assert f"Could not upgrade {ELR} to 9. " in outcome.output
    assert "1 out of 1" in outcome.errors
