"""Which processes a process has started, by what Linux tells of each."""

from __future__ import annotations

from pathlib import Path


def below(pid: int) -> list[int]:
    """Return all that a process has started, and what those have, the nearest first."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and (fields := _fields(int(folder.name))):
            children.setdefault(int(fields[1]), []).append(int(folder.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found[1:]


def command(pid: int) -> str:
    """Return how a process was called; nothing, when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    """Return whether it has not ended. One that nobody has asked for since, has."""
    fields = _fields(pid)
    return bool(fields) and fields[0] not in "ZXx"


def _fields(pid: int) -> list[str]:
    """Return what stands behind a process's name: its state, its parent."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text[text.rfind(")") + 1 :].split()
