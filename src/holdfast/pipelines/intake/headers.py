"""The column `headers`: a record's headers as Arrow, in their order, with every repetition.

As with the JVM connector, a record without headers has null, not an empty list. It must never let
one record's odd header end a query.
"""

from __future__ import annotations

import gc
from operator import methodcaller
from typing import Any, Final

import pyarrow as pa

Header = tuple[str, bytes | None]
NOT_TEXT = "\ufffd"  # what stands for bytes that are not UTF-8
# As Spark derives it from array<struct<key:string,value:binary>>, names of fields included.
ARROW_TYPE = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)


# The client sets an error and returns a list all the same. That raises where the interpreter checks
# what a call returns, which it does not for a method that it has called often: so ask through this.
_ASK: Final = methodcaller("headers")


def column(messages: list[Any]) -> pa.Array:
    """Return the headers of these messages, one list or null for each."""
    rows = []
    for message in messages:
        found = headers_of(message)
        rows.append([{"key": key, "value": value} for key, value in found] if found else None)
    return pa.array(rows, ARROW_TYPE)


def headers_of(message: Any) -> list[Header]:
    """Return a message's headers; keys are text, their bytes that are not UTF-8 replaced.

    The client raises for such a key, and has the other headers all the same when it is asked again.
    Of several such keys in one record it tells the bytes of the first one only: the others become
    a single replacement character.
    """
    try:
        return _ASK(message) or []
    except (SystemError, UnicodeDecodeError) as error:
        told = _undecodable(error)
        if told is None:
            raise
    pairs = _ASK(message)
    # Where the key could not be decoded the pair has no object in its first place, and touching
    # that would end the process: ask what the pair refers to instead.
    broken = [at for at, pair in enumerate(pairs) if len(gc.get_referents(pair)) < len(pair)]
    stand_ins = dict.fromkeys(broken, NOT_TEXT) | {broken[0]: told.decode(errors="replace")}
    return [
        (stand_ins[at] if at in stand_ins else pair[0], pair[1]) for at, pair in enumerate(pairs)
    ]


def _undecodable(error: BaseException | None) -> bytes | None:
    """Return the key's bytes that began it; each further key that is none wraps the error anew."""
    told = None
    while error is not None:
        if isinstance(error, UnicodeDecodeError):
            told = error.object
        error = error.__cause__ or error.__context__
    return told
