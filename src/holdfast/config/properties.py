"""Java's properties format, as far as server.properties uses it. Pure: text in, pairs out."""

from __future__ import annotations

from typing import Final

from holdfast.config.key import ConfigError

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK: Final = " \t\f"


def parse_properties(text: str) -> dict[str, str]:
    """Return key -> value of a properties file; a later line wins. ConfigError names the line.

    Comments begin with # or !, a key ends at =, : or white space, a backslash at the end of a line
    continues it, and the escapes of Java are understood.
    """
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key_end, value_start = _split(line)
        key = _unescape(line[:key_end], number)
        if not key:
            raise ConfigError(f"line {number}: there is no key before the separator in {line!r}")
        properties[key] = _unescape(line[value_start:], number).rstrip()
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
        if _ends_open(line):
            pending += line[:-1]
            continue
        lines.append((start, pending + line))
        pending = ""
    if pending:
        lines.append((start, pending))
    return lines


def _ends_open(line: str) -> bool:
    """An odd number of backslashes at the end continues the line."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[int, int]:
    """Return where the key ends and where the value starts."""
    end = 0
    while end < len(line) and line[end] not in "=: \t\f":
        end += 2 if line[end] == "\\" else 1
    end = min(end, len(line))
    start = end
    while start < len(line) and line[start] in _BLANK:
        start += 1
    if start < len(line) and line[start] in "=:":
        start += 1
        while start < len(line) and line[start] in _BLANK:
            start += 1
    return end, start


def _unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return text
    result: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            result.append(character)
            continue
        escape = text[position]
        position += 1
        if escape == "u":
            digits = text[position : position + 4]
            if len(digits) != 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise ConfigError(f"line {number}: \\u must be followed by four hex digits")
            result.append(chr(int(digits, 16)))
            position += 4
        else:
            result.append(_ESCAPES.get(escape, escape))
    return "".join(result)


def _escape(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"\\{escaped}" if escaped[:1] in (" ", "\t", "\f") else escaped


def _escape_key(key: str) -> str:
    escaped = _escape(key)
    for separator in "=: #!":
        escaped = escaped.replace(separator, f"\\{separator}")
    return escaped
