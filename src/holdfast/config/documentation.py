"""What each key means, in a sentence or two. Data; loaded only when somebody asks."""

from __future__ import annotations


def document(name: str) -> str:
    """Return what a key means."""
    return _DOCUMENTATION.get(name, "")


_DOCUMENTATION: dict[str, str] = {}
