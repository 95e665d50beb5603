"""Which entry of explained.toml holds for a difference."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from compare.answers import Difference

Reason = dict[str, str]


def reason_of(one: Difference, reasons: Sequence[Reason]) -> Reason | None:
    """Return the first entry whose patterns all match; one that it does not have matches all.

    `*` stands for any text; brackets are themselves.
    """
    for reason in reasons:
        if all(
            fnmatch.fnmatchcase(getattr(one, key), reason.get(key, "*").replace("[", "[[]"))
            for key in ("step", "path", "ours", "theirs")
        ):
            return reason
    return None
