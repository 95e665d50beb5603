"""Goal: nothing that fails while all is ended takes the place of what has ended it.

Method: ends that raise, in each order, behind a reason of each kind.
"""

from __future__ import annotations

import pytest

from holdfast.cluster.ending import end_all
from holdfast.cluster.layout import WaitError


def test_all_is_ended_and_what_weighs_most_is_raised() -> None:
    ended: list[str] = []

    def end(name: str, error: BaseException | None = None) -> None:
        ended.append(name)
        if error is not None:
            raise error

    def ends(*errors: BaseException) -> list[object]:
        ended.clear()
        return [
            *(lambda e=error: end(type(e).__name__, e) for error in errors),
            lambda: end("last"),
        ]

    first, second, interrupt = WaitError("first"), OSError("second"), KeyboardInterrupt()
    with pytest.raises(WaitError, match="first") as seen:
        end_all(ends(first, second))  # type: ignore[arg-type]
    assert ended == ["WaitError", "OSError", "last"]
    assert seen.value.__notes__ == ["Behind it: OSError('second')"]
    with pytest.raises(KeyboardInterrupt):
        end_all(ends(first, interrupt, second))  # type: ignore[arg-type]
    assert ended == ["WaitError", "KeyboardInterrupt", "OSError", "last"]
    with pytest.raises(KeyboardInterrupt):
        end_all(ends(interrupt, first))  # type: ignore[arg-type]
    end_all(ends(first), interrupt)  # type: ignore[arg-type]
    end_all(ends(second), first)  # type: ignore[arg-type]
    end_all(ends(interrupt), SystemExit(2))  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        end_all(ends(interrupt), first)  # type: ignore[arg-type]
    assert ended == ["KeyboardInterrupt", "last"]
