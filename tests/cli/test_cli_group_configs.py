"""Goal: settings of groups are changed and shown as by kafka-configs.

Method: a cluster of ours, or any Kafka (HOLDFAST_TEST_BOOTSTRAP); which groups there are is told to
the command where a broker would be asked.
"""

from __future__ import annotations

import json

import pytest
from tests.cli.conftest import Run
from tests.cli.test_cli_admin import PREFIX, shown

from holdfast.cli import configs
from holdfast.wire.administration import ConfigEntry
from holdfast.wire.structs import ResourceType

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def shown_line(name: str, *, own: int, default: int) -> str:
    synonyms = f"DYNAMIC_GROUP_CONFIG:{name}={own}, DEFAULT_CONFIG:group.{name}={default}"
    return f"  {name}={own} sensitive=false synonyms={{{synonyms}}}"


@pytest.mark.slow
def test_settings_of_a_group_are_changed_and_shown(run: Run, bootstrap: str) -> None:
    name = f"{PREFIX}-group"
    of_group = ["configs", "--bootstrap-server", bootstrap, "--entity-type", "groups",
                "--entity-name", name]  # fmt: skip
    done = run(*of_group, "--alter", "--add-config", f"{SESSION}=50000,{HEARTBEAT}=6000")
    assert (done.status, done.output) == (0, f"Completed updating config for group {name}.\n")
    lines = shown(run, *of_group, "--describe", until=lambda text: SESSION in text).splitlines()
    assert lines == [
        f"Dynamic configs for group {name} are:",
        shown_line(HEARTBEAT, own=6000, default=5000),
        shown_line(SESSION, own=50000, default=45000),
    ]
    (described,) = json.loads(run(*of_group, "--describe", "--json").output)
    assert (described["entity_type"], described["entity_name"]) == ("groups", name)
    assert [entry["source"] for entry in described["configs"]] == ["DYNAMIC_GROUP_CONFIG"] * 2
    everything = run(*of_group, "--describe", "--all").output.splitlines()
    assert everything[0] == f"All configs for group {name} are:"
    assert len(everything) > 10
    wrong = run(*of_group, "--alter", "--add-config", "consumer.session.timeout=1")
    assert (wrong.status, "INVALID_CONFIG" in wrong.errors) == (1, True)
    assert "Did you mean" in wrong.errors
    beyond = run(*of_group, "--alter", "--add-config", f"{SESSION}=60001")
    assert "less than or equal to group.consumer.max.session.timeout.ms" in beyond.errors
    assert run(*of_group, "--alter", "--delete-config", f"{SESSION},{HEARTBEAT}").status == 0
    shown(run, *of_group, "--describe", "--all", until=lambda text: "DYNAMIC" not in text)


@pytest.mark.parametrize(
    ("present", "configured", "told"),
    [
        ({"there"}, set(), True),
        (set(), {"there"}, True),
        (set(), None, True),  # nobody knows
        ({"payments"}, {"their"}, False),
    ],
)
def test_a_group_of_which_nobody_has_heard(
    run: Run,
    bootstrap: str,
    monkeypatch: pytest.MonkeyPatch,
    present: set[str],
    configured: set[str] | None,
    *,
    told: bool,
) -> None:
    monkeypatch.setattr(configs, "present_groups", lambda _: present)
    monkeypatch.setattr(configs, "configured_groups", lambda _: configured)
    at = ["configs", "--bootstrap-server", bootstrap, "--entity-type", "groups", "--describe"]
    outcome = run(*at, "--entity-name", "there")
    if told:
        assert (outcome.status, outcome.output) == (0, "Dynamic configs for group there are:\n")
    else:
        assert outcome.status == 1
        assert "there is no such group, and nothing is set for one." in outcome.errors
        assert "Did you mean their?" in outcome.errors
    assert run(*at, "--entity-name", "there", "--all").status == 0, "what it would have"
    titles = [
        line.removeprefix("Dynamic configs for group ").removesuffix(" are:")
        for line in run(*at).output.splitlines()
    ]
    assert titles == sorted(present | (configured or set()))


def test_what_is_a_group_s_own() -> None:
    def entry(source: str) -> ConfigEntry:
        return ConfigEntry(
            name=SESSION, value="1", source=source, read_only=False, sensitive=False, synonyms=[]
        )

    for source, own in (
        ("DYNAMIC_GROUP_CONFIG", True),
        ("DYNAMIC_BROKER_CONFIG", False),
        ("DYNAMIC_DEFAULT_BROKER_CONFIG", False),
        ("DYNAMIC_TOPIC_CONFIG", False),
    ):
        assert configs.is_own(ResourceType.GROUP, "g", entry(source)) is own
