"""Goal: a nodes' file is understood, or refused with the line and the key that are wrong.

Method: small files; of each mistake one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.cluster.elsewhere.nodes_file import (
    BOUNDS_S,
    FILE_BYTES_MAX,
    NAMES,
    NodesFile,
    line_of,
    listed,
    read_nodes_file,
)
from holdfast.cluster.layout import BROKER, NodeRecord, UsageError

HEAD = 'bootstrap-server = "kafka-1:9092,kafka-2:9092"\n'
START = 'start = "ssh kafka-{id} sudo systemctl start kafka"\n'


def node(number: int) -> NodeRecord:
    return NodeRecord(
        id=number,
        roles=(BROKER,),
        host="kafka-x",
        port=9093,
        log_file="",
        config_file="",
    )


def read(directory: Path, text: str) -> NodesFile:
    path = directory / "nodes.toml"
    path.write_text(text)
    return read_nodes_file(path)


def refusal(directory: Path, text: str) -> str:
    with pytest.raises(UsageError) as refused:
        read(directory, text)
    return str(refused.value)


def test_commands_are_those_of_all_nodes_or_a_nodes_own(tmp_path: Path) -> None:
    text = (
        f'{HEAD}timeout = 2.5\n[commands]\n{START}kill = "docker kill kafka-{{id}}"\n'
        "[nodes.7]\nkill = \"sh -c 'echo {host}:{port} ${pid} {{.State}}'\"\n"
    )
    file = read(tmp_path, text)
    assert file.servers == "kafka-1:9092,kafka-2:9092"
    assert (file.timeout_s, file.start_timeout_s) == (2.5, BOUNDS_S["start-timeout"])
    assert file.words("kill", node(1)) == ["docker", "kill", "kafka-1"]
    assert file.words("kill", node(7)) == ["sh", "-c", "echo kafka-x:9093 ${pid} {{.State}}"]
    start = ["ssh", "kafka-7", "sudo", "systemctl", "start", "kafka"]
    assert file.words("start", node(7)) == start
    assert file.words("pause", node(7)) is None
    assert list(listed(file, [node(1)], NAMES)) == [
        "  node 1  start      ssh kafka-1 sudo systemctl start kafka",
        "  node 1  kill       docker kill kafka-1",
    ]


@pytest.mark.parametrize("host", ["x; rm -rf /", "-oProxyCommand", "x y", "$(x)", ""])
def test_what_a_cluster_says_is_not_read_by_a_shell(tmp_path: Path, host: str) -> None:
    """Method: a broker that is advertised at what a shell would run, or ssh take for an option."""
    there = replace(node(1), host=host)
    file = read(tmp_path, f"{HEAD}[commands]\n{START}heal = \"sh -c 'echo {{host}}'\"\n")
    assert file.words("start", there)
    with pytest.raises(UsageError, match="which is no host's name: it is not put into `heal` of"):
        file.words("heal", there)


def test_a_node_without_commands_is_not_hurt(tmp_path: Path) -> None:
    one = read(tmp_path, f"{HEAD}[nodes.1]\n{START}")
    assert [one.may_hurt(number) for number in (0, 1)] == [False, True]
    assert read(tmp_path, f"{HEAD}[commands]\n{START}").may_hurt(0)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (f"{HEAD}[commands]\nstrat = 'x'\n", 3, "commands.strat: there is no such key. Did you m"),
        (f"{HEAD}\n[comands]\n", 3, "comands: there is no such key. Did you mean commands?"),
        (f"{HEAD}[nodes.1]\n\nkill = 'x'\n", 4, "nodes.1.kill: there is no command `start`"),
        (f"{HEAD}[commands]\npause = 'x'\n", 3, "commands.pause: there is no command `resume`"),
        (f"{HEAD}[commands]\ncut = 'x'\n", 3, "commands.cut: there is no command `heal`"),
        (f"{HEAD}[nodes.one]\n{START}", 2, "nodes.one: it must be a broker's id"),
        (f"{HEAD}[nodes.1]\n{START}[nodes.01]\n", 4, "nodes.01: it must be a broker's id"),
        (f"{HEAD}[nodes.{'9' * 5000}]\n", 2, "it must be a broker's id"),
        (f'{HEAD}[commands]\nstart = "x \\u0000"\n', 3, "commands.start: a command has no char"),
        (f"{HEAD}[commands]\nstart = ''\n", 3, "commands.start: a command must have words"),
        (f"{HEAD}[commands]\nstart = ['x']\n", 3, "commands.start: a command must be one text"),
        (f'{HEAD}[commands]\nstart = """\nx\n\'y"""\n', 3, "commands.start: no closing quotation"),
        (f"{HEAD}[commands]\nstart = 'x {{node}}'\n", 3, "{node} stands for nothing; there are"),
        (f"{HEAD}timeout = 0\n[commands]\n{START}", 2, "timeout: it lies between 0 and 3600"),
        (f"{HEAD}timeout = true\n[commands]\n{START}", 2, "timeout: it must be a number"),
        (f"{HEAD}commands = 'x'\n", 2, "commands: it must be a table: [commands]"),
        (f"bootstrap-server = 'kafka'\n[commands]\n{START}", 1, "'kafka' is not host:port"),
        (f"[commands]\n{START}", None, "bootstrap-server is missing"),
        (HEAD, None, "it has no commands"),
        (f"{HEAD}[commands\n", None, "this is no TOML: Expected ']' at the end of a table decl"),
        ("a = " + "[" * 9000, None, "this is no TOML"),
        ("#" * (FILE_BYTES_MAX + 1), None, "it is larger than 16 KiB"),
    ],
)
def test_a_mistake_is_named_with_its_line(
    tmp_path: Path, text: str, line: int | None, words: str
) -> None:
    said = refusal(tmp_path, text)
    assert words in said
    assert said.startswith(f"--nodes {tmp_path / 'nodes.toml'}")
    assert line is None or f", line {line}: " in said


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--nodes .*gone\.toml: No such file"):
        read_nodes_file(tmp_path / "gone.toml")


def test_the_line_is_that_of_the_statement() -> None:
    text = 'a = [\n  1,\n  2,\n]\n# why\n\n[t]\nb = """\nlong\n"""\nc.d = 1\n'
    places = {("a",): 1, ("t",): 7, ("t", "b"): 8, ("t", "c"): 11, ("t", "c", "d"): 11}
    assert {keys: line_of(text, keys) for keys in places} == places
