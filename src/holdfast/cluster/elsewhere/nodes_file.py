"""The file that says how nodes elsewhere are hurt: its keys, its commands, and what is wrong in it.

Owns reading and refusing, each refusal with the file, the line and the key. Nothing is run here.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from holdfast.clients.blocking_driver import parse_addresses
from holdfast.cluster.layout import NodeRecord, UsageError

SERVERS: Final = "bootstrap-server"
COMMANDS, NODES = "commands", "nodes"
TIMEOUT, START_TIMEOUT = "timeout", "start-timeout"
BOUNDS_S: Final = {TIMEOUT: 30.0, START_TIMEOUT: 120.0}  # where the file says nothing
BOUND_S_MAX: Final = 3600.0
FILE_BYTES_MAX: Final = 16 << 10

START, KILL, TERMINATE = "start", "kill", "terminate"
PAUSE, RESUME, CUT, HEAL = "pause", "resume", "cut", "heal"
# What ends what each command has done: who has the one must have the other.
UNDONE_BY: Final[Mapping[str, str]] = {
    KILL: START,
    TERMINATE: START,
    PAUSE: RESUME,
    CUT: HEAL,
}
NAMES: Final = (START, KILL, TERMINATE, PAUSE, RESUME, CUT, HEAL)
STANDS_FOR: Final = ("{id}", "{host}", "{port}")
_HOST: Final = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9._:-]*")  # and nobody's option
_ID: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_LIKE_ONE: Final = re.compile(r"(?<!\$)\{[A-Za-z_]+\}")  # ${NAME} is a shell's

Words = tuple[str, ...]
Keys = tuple[str, ...]  # of keys, from the top


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesFile:
    """What the file says."""

    path: Path
    servers: str
    timeout_s: float  # of each command
    start_timeout_s: float  # for a node to serve once its start has been asked for
    commands: Mapping[str, Words]  # of every node
    nodes: Mapping[int, Mapping[str, Words]]  # of single nodes, in place of those

    def words(self, name: str, node: NodeRecord) -> list[str] | None:
        """Return a command of a node, as it is run; None: the file has none.

        UsageError: what the cluster says of the node might be read by a shell, and is no name.
        """
        found = self.nodes.get(node.id, {}).get(name) or self.commands.get(name)
        if found is None:
            return None
        values = dict(zip(STANDS_FOR, (str(node.id), node.host, str(node.port)), strict=True))
        if not _HOST.fullmatch(node.host) and any("{host}" in word for word in found):
            raise UsageError(
                f"The cluster says that node {node.id} is at {node.host!r}, which is no host's "
                f"name: it is not put into `{name}` of {self.path}."
            )
        return [_filled(word, values) for word in found]

    def may_hurt(self, node_id: int) -> bool:
        """Whether there is any command for this node."""
        return bool(self.commands) or node_id in self.nodes


def _filled(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word


def read_nodes_file(path: Path) -> NodesFile:
    """Read the file. UsageError: it can't be read, or can't be used; the text names the line."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"--nodes {path}: {error.strerror}.") from None
    if len(data) > FILE_BYTES_MAX:
        raise UsageError(f"--nodes {path}: it is larger than {FILE_BYTES_MAX >> 10} KiB.")
    try:
        text = data.decode()
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a TOMLDecodeError names line and column
        raise UsageError(f"--nodes {path}: this is no TOML: {error}.") from None
    return _Reader(path, text).read(values)


class _Reader:
    """Reads one file's values, and says where a wrong one stands."""

    def __init__(self, path: Path, text: str) -> None:
        self._path, self._text = path, text

    def read(self, values: Mapping[str, Any]) -> NodesFile:
        self._known(values, (SERVERS, *BOUNDS_S, COMMANDS, NODES), ())
        nodes = {
            self._number(number): self._commands(table, (NODES, number))
            for number, table in self._table(values.get(NODES, {}), (NODES,)).items()
        }
        everywhere = self._commands(values.get(COMMANDS, {}), (COMMANDS,))
        if not everywhere and not any(nodes.values()):
            raise UsageError(
                f"--nodes {self._path}: it has no commands; a table [{COMMANDS}] has those of "
                f"every node, [{NODES}.ID] those of one. For a scenario that breaks nothing "
                "--bootstrap-server is enough."
            )
        self._expect_undone(everywhere, {}, (COMMANDS,))
        for node, own in nodes.items():
            self._expect_undone(own, everywhere, (NODES, str(node)))
        return NodesFile(
            path=self._path,
            servers=self._servers(values),
            timeout_s=self._seconds(values, TIMEOUT),
            start_timeout_s=self._seconds(values, START_TIMEOUT),
            commands=everywhere,
            nodes=nodes,
        )

    def _refuse(self, keys: Keys, text: str) -> UsageError:
        line = line_of(self._text, keys)
        return UsageError(f"--nodes {self._path}, line {line}: {'.'.join(keys)}: {text}")

    def _known(self, table: Mapping[str, Any], names: Sequence[str], under: Keys) -> None:
        for name in table:
            if name not in names:
                near = get_close_matches(name, names, 1)
                meant = f" Did you mean {near[0]}?" if near else f" There are {', '.join(names)}."
                raise self._refuse((*under, name), f"there is no such key.{meant}")

    def _table(self, value: Any, keys: Keys) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self._refuse(keys, f"it must be a table: [{'.'.join(keys)}]")
        return value

    def _number(self, text: str) -> int:
        if not _ID.fullmatch(text):
            raise self._refuse((NODES, text), "it must be a broker's id: a number")
        return int(text)

    def _servers(self, values: Mapping[str, Any]) -> str:
        value = values.get(SERVERS)
        if value is None:
            raise UsageError(
                f'--nodes {self._path}: {SERVERS} is missing; write {SERVERS} = "HOST:PORT" above '
                "all tables."
            )
        if not isinstance(value, str):
            raise self._refuse((SERVERS,), 'it must be one text, "HOST:PORT,HOST:PORT"')
        try:
            parse_addresses(value)
        except ValueError as error:
            raise self._refuse((SERVERS,), f"{error}") from None
        return value

    def _seconds(self, values: Mapping[str, Any], name: str) -> float:
        value = values.get(name, BOUNDS_S[name])
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._refuse((name,), "it must be a number of seconds")
        if not 0 < value <= BOUND_S_MAX:
            raise self._refuse((name,), f"it lies between 0 and {BOUND_S_MAX:g} seconds")
        return float(value)

    def _commands(self, value: Any, under: Keys) -> dict[str, Words]:
        table = self._table(value, under)
        self._known(table, NAMES, under)
        return {name: self._words(text, (*under, name)) for name, text in table.items()}

    def _words(self, value: Any, keys: Keys) -> Words:
        if not isinstance(value, str):
            raise self._refuse(keys, "a command must be one text; sh -c '...' takes a whole script")
        try:
            words = tuple(shlex.split(value))
        except ValueError as error:
            raise self._refuse(keys, f"{str(error).lower()}") from None
        if not words:
            raise self._refuse(keys, "a command must have words; leave it out if there is none")
        if "\0" in value:
            raise self._refuse(keys, "a command has no character 0")
        for word in words:
            for found in _LIKE_ONE.findall(word):
                if found not in STANDS_FOR:
                    raise self._refuse(
                        keys, f"{found} stands for nothing; there are {', '.join(STANDS_FOR)}"
                    )
        return words

    def _expect_undone(
        self, own: Mapping[str, Words], others: Mapping[str, Words], under: Keys
    ) -> None:
        for name in own:
            undo = UNDONE_BY.get(name)
            if undo is not None and undo not in own and undo not in others:
                raise self._refuse(
                    (*under, name), f"there is no command `{undo}` that ends what it has done"
                )


def line_of(text: str, keys: Keys) -> int:
    """Return the line where a key stands: the first of the statement by which it is there.

    The parser itself says so: the shortest beginning of the text that has the key.
    """
    lines, before = text.split("\n"), 0
    for count in range(1, len(lines) + 1):
        try:
            values = tomllib.loads("\n".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            continue  # in the middle of a value
        if _has(values, keys):
            return before + 1
        before = count
    return len(lines)


def _has(values: Any, keys: Keys) -> bool:
    for key in keys:
        if not isinstance(values, dict) or key not in values:
            return False
        values = values[key]
    return True


def told(words: Sequence[str]) -> str:
    """Return a command as it would be typed."""
    return f"`{shlex.join(words)}`"


def listed(file: NodesFile, nodes: Sequence[NodeRecord], names: Sequence[str]) -> Iterator[str]:
    """Yield a line for each command that a scenario may run, as it would be run."""
    for node in nodes:
        for name in names:
            words = file.words(name, node)
            if words is not None:
                yield f"  node {node.id}  {name:<9}  {shlex.join(words)}"
