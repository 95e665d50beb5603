"""Which topics `subscribePattern` means. Owns the use of RE2.

RE2's time is linear in the name's length, so no pattern can hold the planner up. What Java has and
RE2 has not (lookaround, references back) is refused when the query is made.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

from holdfast.pipelines.intake.option_values import OptionError

# The brokers' own: no pattern means them. Who wants one names it with subscribe.
INTERNAL = frozenset({"__consumer_offsets", "__share_group_state", "__transaction_state"})
PATTERN_MEMORY_BYTES_MAX = 1 << 20


@lru_cache(maxsize=16)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Return what says of a topic's name whether it is meant: some part of it has to match.

    As with Spark's own connector, which searches a name for Java's expression.
    """
    try:
        re2 = import_module("re2")
    except ImportError as error:
        raise OptionError(
            "subscribePattern: this needs the Python package google-re2 where the query is "
            "planned (pip install google-re2); or name the topics with subscribe"
        ) from error
    options = re2.Options()
    options.max_mem = PATTERN_MEMORY_BYTES_MAX
    options.log_errors = False
    try:
        compiled: Any = re2.compile(pattern, options=options)
    except (re2.error, UnicodeEncodeError) as error:
        raise OptionError(
            f"subscribePattern: {pattern!r} is not in RE2's syntax: {_text(error)} "
            "(https://github.com/google/re2/wiki/Syntax)"
        ) from error
    return lambda name: name not in INTERNAL and compiled.search(name) is not None


def _text(error: Exception) -> str:
    """RE2 gives its reasons as bytes."""
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
