"""What is known of a difference: that it is meant, and why, or that it is to be mended, and how."""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from compare.answers import Difference

# What a difference's fields have to match, each a pattern or several, and what is known of it.
Reason = dict[str, str | list[str]]

EXPLAINED: Final = Path(__file__).with_name("explained.toml")
TO_MEND: Final = Path(__file__).with_name("to_mend.toml")
WHY: Final = "why"  # of an entry of the first
MEND: Final = "mend"  # of an entry of the second
SOMETIMES: Final = "sometimes"  # of an entry of either that chance may leave without a difference


def known() -> list[Reason]:
    """Return the entries of both files, those of what is meant first."""
    return [
        reason
        for path in (EXPLAINED, TO_MEND)
        for reason in tomllib.loads(path.read_text(encoding="utf-8"))["difference"]
    ]


def unused(reasons: Sequence[Reason], used: Sequence[Reason | None]) -> list[Reason]:
    """Return the entries for which there is no difference any more, other than by chance."""
    return [one for one in reasons if one not in used and SOMETIMES not in one]


def reason_of(one: Difference, reasons: Sequence[Reason]) -> Reason | None:
    """Return the first entry whose patterns match; a field that it does not name matches always."""
    for reason in reasons:
        if all(_matches(getattr(one, field), reason.get(field, "*")) for field in one._fields):
            return reason
    return None


def _matches(text: str, patterns: str | list[str]) -> bool:
    """Whether any of the patterns matches. `*` stands for any text; brackets are themselves."""
    if isinstance(patterns, str):
        patterns = [patterns]
    return any(fnmatch.fnmatchcase(text, each.replace("[", "[[]")) for each in patterns)
