"""Java's properties format, as far as server.properties uses it. Pure: text in, pairs out."""

from __future__ import annotations

import re
from typing import Final

from holdfast.config.key import ConfigError

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK: Final = " \t\f"
# A backslash takes the character behind it along, so that a separator may stand in a key.
_PAIR: Final = re.compile(
    r"(?P<key>(?:\\.?|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL
)
_ESCAPED: Final = re.compile(r"\\(?:u(?P<digits>[0-9a-fA-F]{4})|(?P<character>.))", re.DOTALL)


def parse_properties(text: str) -> dict[str, str]:
    """Return key -> value of a properties file; a later line wins. ConfigError names the line.

    Comments begin with # or !, a key ends at =, : or white space, a backslash at the end of a line
    continues it, and the escapes of Java are understood.
    """
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        pair = _PAIR.fullmatch(line)
        assert pair is not None, "every line has a key and a value, though they may be empty"
        key = _unescape(pair["key"], number)
        if not key:
            raise ConfigError(f"line {number}: there is no key before the separator in {line!r}")
        properties[key] = _unescape(pair["value"], number).rstrip()
    return properties


def format_properties(properties: dict[str, str]) -> str:
    """Return the text of a properties file that `parse_properties` reads back."""
    return "".join(f"{_escape_key(key)}={_escape(value)}\n" for key, value in properties.items())


def _logical_lines(text: str) -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    pending = ""
    start = 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.lstrip(_BLANK)
        if not pending:
            start = number
            if not line or line[0] in "#!":
                continue
        if (len(line) - len(line.rstrip("\\"))) % 2:  # an odd number of them continues the line
            pending += line[:-1]
            continue
        lines.append((start, pending + line))
        pending = ""
    if pending:
        lines.append((start, pending))
    return lines


def _unescape(text: str, number: int) -> str:
    def meant(escaped: re.Match[str]) -> str:
        character, digits = escaped["character"], escaped["digits"]
        if character == "u":
            raise ConfigError(f"line {number}: \\u must be followed by four hex digits")
        return chr(int(digits, 16)) if digits else _ESCAPES.get(character, character)

    return _ESCAPED.sub(meant, text)


def _escape(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"\\{escaped}" if escaped[:1] in (" ", "\t", "\f") else escaped


def _escape_key(key: str) -> str:
    return re.sub("[=: #!]", r"\\\g<0>", _escape(key))
