"""Options that go together, and those that would be ignored: each is refused with a sentence.

Every option of a command is either in the command's table of what it goes with, or named here as
one that suits every action. A new option is in neither, and fails the first test.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.models import OptionInfo

from holdfast.cli import command_table as table
from holdfast.cli import configs, delete_records
from holdfast.cli.cat import cat_command as cat
from holdfast.cli.consumer_groups import groups_command as groups
from holdfast.cli.quick import _names, _parameters
from holdfast.cli.reassignment import reassign_partitions as reassign
from holdfast.cli.topics import topics_command as topics

if TYPE_CHECKING:
    from tests.cli.conftest import Run

NOBODY = ["--bootstrap-server", "127.0.0.1:1"]
WHOM = {"--bootstrap-server", "--data-dir"}
# Holds what each of the options that read a file is after.
FILE = (
    '{"topics":[{"topic":"t"}],'
    '"partitions":[{"topic":"t","partition":0,"offset":3,"replicas":[1]}]}'
)
# What an option is given as, where it takes a value.
VALUES = {
    "--partitions": "3",
    "--replication-factor": "1",
    "--replica-assignment": "1:0",
    "--config": "retention.ms=1",
    "--add-config": "retention.ms=1",
    "--delete-config": "retention.ms",
    "--topic": "t",
    "--partition": "0",
    "--before-offset": "5",
    "--broker-list": "1,2",
    "--topics-to-move-json-file": "file",
    "--reassignment-json-file": "file",
    "--throttle": "1000",
    "--group": "g",
    "--to-offset": "3",
    "--shift-by": "-3",
    "--by-duration": "PT1H",
    "--to-datetime": "2026-01-31T12:00:00.000",
    "--from-file": "file",
    "--timeout": "1000",
    "-p": "0",
    "-k": "key",
    "-K": ":",
    "-D": ";",
    "-o": "end",
    "-c": "1",
    "-f": "%s",
    "-H": "a=b",
    "-z": "gzip",
}
# Of each command: what says what to do, with what that needs; and options that suit all of it.
TOPICS = {
    "--list": ["--list"],
    "--create": ["--create", "--topic", "t"],
    "--describe": ["--describe", "--topic", "t"],
    "--alter": ["--alter", "--topic", "t", "--partitions", "3"],
    "--delete": ["--delete", "--topic", "t"],
}
CONFIGS = {
    "--describe": ["--describe", "--entity-name", "t"],
    "--alter": ["--alter", "--entity-name", "t", "--add-config", "a=b"],
}
DELETE = {
    "--topic": ["--topic", "t", "--partition", "0", "--all"],
    "--offset-json-file": ["--offset-json-file", "file"],
}
REASSIGN = {
    "--replication-factor": ["--replication-factor", "3", "--topic", "t"],
    "--remove-broker": ["--remove-broker", "1"],
    "--spread": ["--spread"],
    "--generate": [
        *("--generate", "--topics-to-move-json-file", "file"),
        *("--broker-list", "1,2"),
    ],
    "--execute": ["--execute", "--reassignment-json-file", "file"],
    "--verify": ["--verify"],
    "--cancel": ["--cancel"],
    "--list": ["--list"],
}
CAT = {
    "-P": ["-P", "-t", "t", "-b", "127.0.0.1:1"],
    "-C": ["-C", "-t", "t", "-b", "127.0.0.1:1"],
    "-G": ["-G", "g", "-b", "127.0.0.1:1", "topic"],
    "-L": ["-L", "-b", "127.0.0.1:1"],
}
GROUPS = {
    "--list": ["--list"],
    "--describe": ["--describe", "--group", "g"],
    "--delete": ["--delete", "--group", "g"],
    "--reset-offsets": ["--reset-offsets", "--group", "g", "--all-topics", "--to-latest"],
    "--delete-offsets": ["--delete-offsets", "--group", "g", "--topic", "t"],
    "--validate-regex": ["--validate-regex", "a.*"],
}
DELETE_GOES_WITH = dict.fromkeys(["--partition", "--before-offset", "--all"], delete_records.WHERE)
COMMANDS: dict[
    str, tuple[Mapping[str, list[str]], Mapping[str, Collection[str]], Collection[str]]
] = {
    "topics": (TOPICS, topics.GOES_WITH, WHOM | {"--topic"}),
    "configs": (
        CONFIGS,
        configs.GOES_WITH,
        WHOM | {"--entity-type", "--entity-name", "--entity-default"},
    ),
    "delete-records": (DELETE, DELETE_GOES_WITH, WHOM | {"--json"}),
    "reassign-partitions": (REASSIGN, reassign.GOES_WITH, WHOM),
    "groups": (GROUPS, groups.GOES_WITH, WHOM),
    "cat": (CAT, cat.GOES_WITH, {"-b", "--data-dir", "-t", "-q", "-m", "-X"}),
}


def options_of(command: str) -> set[str]:
    """Every option of a command; what isn't one is FILE."""
    infos = [found.info for found in _parameters(table.function_named(command))]
    options = {name for each in infos if isinstance(each, OptionInfo) for name in _names(each)}
    return options | {"FILE" for each in infos if not isinstance(each, OptionInfo)}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_accounted_for(command: str) -> None:
    """Goal: no option is forgotten. Method: the command's declarations against its table."""
    actions, goes_with, common = COMMANDS[command]
    assert options_of(command) == {*actions, *goes_with, *common}


def pairs() -> list[tuple[str, str, str]]:
    """Each command's actions and the options that have no effect with them."""
    return [
        (command, action, option)
        for command, (actions, goes_with, _) in COMMANDS.items()
        for action, option in itertools.product(actions, goes_with)
        if action not in goes_with[option]
    ]


def typed(action: list[str], option: str) -> list[str]:
    """An action with one more option."""
    if option == "FILE":
        return [*action, "file"]
    return [*action, option, *([VALUES[option]] if option in VALUES else [])]


def at(command: str) -> list[str]:
    return [] if command == "cat" else NOBODY


@pytest.mark.parametrize(("command", "action", "option"), pairs())
def test_an_option_without_effect_is_refused(
    run: Run, command: str, action: str, option: str
) -> None:
    """Goal: nothing is ignored. Method: every pair, at an address where nobody is: it isn't asked.

    One that the action takes itself (`--alter --config`) has a sentence of its own.
    """
    outcome = run(command, *at(command), *typed(COMMANDS[command][0][action], option))
    assert (outcome.status, outcome.output) == (2, "")
    assert option in outcome.errors
    assert outcome.errors.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "action"),
    [
        (command, action)
        for command in COMMANDS
        if command != "cat"
        for action in COMMANDS[command][0]
    ],
)
def test_an_option_with_effect_is_taken(
    run: Run, command: str, action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: no more is refused. Method: the same address; the only complaint is that it's dead."""
    (tmp_path / "file").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    actions, goes_with, _ = COMMANDS[command]
    taken = [option for option, suited in goes_with.items() if action in suited]
    for option in taken:
        if option in actions[action]:
            continue
        arguments = [*at(command), *typed(actions[action], option)]
        if (command, action) == ("delete-records", "--topic"):
            continue  # its options are alternatives; see the tests of the command
        outcome = run(command, *arguments)
        alternatives = {"--replica-assignment", "--topic", "--all-groups", *groups.AIMS}
        exclusive = alternatives & set(arguments[2:]) and outcome.status == 2
        if not exclusive:
            assert (outcome.status, "nobody answers" in outcome.errors) == (1, True), arguments


@pytest.mark.parametrize(
    "line",
    [
        "topics --list --if-exists",
        "topics --create --topic t --replica-assignment 1:0 --partitions 1",
        "topics --create --topic t --replica-assignment 1:0 --replication-factor 2",
        "topics --describe --unavailable-partitions --topics-with-overrides",
        "topics --list --describe",
        "topics --list --topic a --topic b",
        "topics --create --topic t --config retention.ms=1 --config retention.ms=2",
        "topics --create --topic=",
        "configs --alter --entity-name t --add-config a=1,a=2",
        "configs --alter --entity-name t --add-config a=1 --delete-config a",
        "configs --describe --entity-name t --entity-type brokers",
        "configs --describe --entity-default",
        "configs --describe --entity-default --entity-type groups",
        "configs --alter --entity-type groups --add-config a=1",
        "delete-records --topic t --all --before-offset 3",
        "delete-records --topic t --before-offset 3",
        "delete-records --topic t --all --offset-json-file f",
        "leader-election --election-type preferred --all-topic-partitions --topic t",
        "leader-election --election-type preferred --all-topic-partitions --partition 0",
        "leader-election --election-type preferred --path-to-json-file f --partition 0",
        "leader-election --election-type both --all-topic-partitions",
        "reassign-partitions --spread --dry-run --no-wait",
        "reassign-partitions --spread --dry-run --throttle 5",
        "reassign-partitions --spread --dry-run --additional",
        "reassign-partitions --verify --reassignment-json-file f --topic t",
        "reassign-partitions --execute",
        "reassign-partitions --spread --list",
        "features upgrade --metadata 4.0-IV3 --feature metadata.version=25",
        "features disable --feature a=1",
        "features --bootstrap-server a:1 describe --bootstrap-server b:1",
        "metadata-quorum describe --json --human-readable",
        "groups",
        "groups --list --describe --group g",
        "groups --describe",
        "groups --describe --group g --all-groups",
        "groups --describe --group=",
        "groups --describe --group g --offsets --members",
        "groups --describe --group g --members --state",
        "groups --describe --group g --state stable",
        "groups --list --state stabel",
        "groups --list --type clasic",
        "groups --delete",
        "groups --delete-offsets --group g",
        "groups --delete-offsets --topic t",
        "groups --delete-offsets --group g --group h --topic t",
        "groups --delete-offsets --group g --topic t:x",
        "groups --reset-offsets --group g --all-topics",
        "groups --reset-offsets --group g --to-latest",
        "groups --reset-offsets --to-latest --all-topics",
        "groups --reset-offsets --group g --to-latest --to-earliest --all-topics",
        "groups --reset-offsets --group g --to-latest --all-topics --topic t",
        "groups --reset-offsets --group g --to-latest --topic t: ",
        "groups --reset-offsets --group g --to-latest --all-topics --dry-run --execute",
        "groups --reset-offsets --group g --to-latest --all-topics --export --json",
        "groups --reset-offsets --group g --from-file f --topic t",
        "groups --reset-offsets --group g --from-file /proc/nowhere",
        "groups --reset-offsets --group g --by-duration 5 --all-topics",
        "groups --reset-offsets --group g --to-datetime 5 --all-topics",
        "groups --reset-offsets --group g --to-offset x --all-topics",
        "groups --list --timeout 0",
        "get-offsets --topic t --topic-partitions t:0",
        "get-offsets --partitions 0 --topic-partitions t:0",
        "get-offsets --partitions x",
        "get-offsets --partitions 0,,1",
        "get-offsets --topic-partitions t:x",
        "get-offsets --topic-partitions t:1:2",
        "get-offsets --topic t( ",
        "get-offsets --time x",
        "get-offsets --time -7",
        "get-offsets --time 99999999999999999999",
        "inspect",
        "inspect t",
        "inspect t-",
        "inspect -0",
        "inspect t-x",
        "inspect t-0 --offset -1",
        "inspect t-0 u-0",
        "cat -G g",
        "cat -G g t -t t",
        "cat -G g -C t",
        "cat -G g t -J -f %s",
        "cat -G g t -X group.id=h",
        "cat -G g t -p 0",
        "cat -P -t t -b a -X bootstrap.servers=b",
        "cat -P -t t -z gzip -X compression.codec=lz4",
        "cat -P -t t -b a --data-dir d",
        "cat -P -t t -D ; file",
        "cat -C -t t -J -f %s",
        "cat -C -t t -J -K :",
        "cat -C -t t -f %s -D ;",
        "cat -C -t t -J -Z",
        "cat -C -t t -o end -o beginning",
        "cat -C -t t -o e@5 -o e@6",
        "cat -P -C -t t",
        "cat -P -t t -l a b",
        "cat -C -t t -m 0",
        "cat -C -t t -m 1e30",
        "cat -C -t t -p 99999999999",
        "cat -P -t t -p -2",
        "cat -C -t t -o s@99999999999999999999",
        "cat -C -t t -o -99999999999999999999",
        "cat -C",
    ],
)
def test_what_makes_no_sense_together(run: Run, line: str) -> None:
    """Goal: status 2 and no output. Method: each command's contradictions, one by one.

    Nobody is asked: that would be status 2 as well, where there is no cluster to default to.
    """
    outcome = run(*line.split())
    assert (outcome.status, outcome.output) == (2, "")
    assert "to default to" not in outcome.errors


def test_a_delimiter_that_is_empty(run: Run) -> None:
    """Goal: no search without an end, no trace. Method: -D '', which never ended, and -K ''."""
    for option in ("-D", "-K"):
        outcome = run("cat", "-P", "-t", "t", option, "", "-b", "127.0.0.1:1")
        assert (outcome.status, f"{option} is empty" in outcome.errors) == (2, True)


def test_a_guessed_mode_is_named(run: Run) -> None:
    """Goal: who forgot -C learns why producing was tried. Method: no mode, and no terminal."""
    outcome = run("cat", "-t", "t", "-e", "-b", "127.0.0.1:1")
    assert outcome.status == 2
    assert "Without -P, -C, -G or -L" in outcome.errors


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--check . --events 5", "--events has no effect with --check"),
        ("--check . --rate 5", "--rate has no effect with --check"),
        ("--check . --seed 5", "--seed has no effect with --check"),
        ("--check . --output new", "--output has no effect with --check"),
        ("--check . --database sqlite:///t.db", "--database has no effect with --check"),
        ("--check . --input file", "--input has no effect with --check"),
        ("--check . --key a", "--key has no effect with --check"),
        ("--key a", "--key has no effect with payments"),
        ("--input file --events 5", "--events has no effect with --input"),
        ("--input file --seed 5", "--seed has no effect with --input"),
        ("--rate nan", "--rate nan: it is no number"),
    ],
)
def test_the_demo_ignores_no_option(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, said: str
) -> None:
    """Goal: a sentence, and nothing left behind. Method: an empty folder, and idle options."""
    monkeypatch.chdir(tmp_path)
    found = run("demo", *typed.split())
    assert (found.status, said in found.errors) == (2, True)
    assert list(tmp_path.iterdir()) == []
