"""When a run did not reach its cluster elsewhere: no broker answered to which nothing was done.

The lab's own way there was cut then, or every broker was down: from here these look the same. What
came too late meanwhile is no proof that the cluster is broken. Owns the looking and what is said of
it; what that excuses is for the run, and for `lab.outcome`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from holdfast.lab.isr_observer import Watcher

LOOK_S: Final = 1.0
# Altogether: clients wait that long for a request, and between their attempts to connect again.
SECONDS_MAX: Final = 5.0
SHOWN_MAX: Final = 3  # silences, in a sentence


@dataclass(slots=True)
class Silences:
    """When nobody answered, all looks together, in seconds of the run. Pure."""

    spans: list[tuple[float, float]] = field(default_factory=list)
    _is_silent: bool = False  # as of the last look
    _overcome_s: float = 0.0

    def take(self, begin_s: float, end_s: float, *, answered: bool | None) -> None:
        """Take in a look; `answered` is None where nobody was left to be asked."""
        if answered is not False:
            self._is_silent = False
            return
        if self._is_silent:
            begin_s, _ = self.spans.pop()
        self.spans.append((begin_s, end_s))
        self._is_silent = True

    def overcome(self, now_s: float) -> None:
        """Let what was so far excuse nothing more: what was waited for has come since."""
        self._overcome_s = now_s

    @property
    def excuse(self) -> str | None:
        """What a run says of all since it was last overcome; None: it is none, or too short."""
        since_s = self._overcome_s
        return _told([(max(begin, since_s), end) for begin, end in self.spans if end > since_s])

    @property
    def text(self) -> str | None:
        """What a report says of the whole run; None: as above."""
        return _told(self.spans)


def _told(spans: list[tuple[float, float]]) -> str | None:
    if sum(end_s - begin_s for begin_s, end_s in spans) < SECONDS_MAX:
        return None
    shown = [f"from {begin_s:.0f} s to {end_s:.0f} s" for begin_s, end_s in spans[:SHOWN_MAX]]
    more = f" and {len(spans) - SHOWN_MAX} times more" if len(spans) > SHOWN_MAX else ""
    return f"the lab did not reach the cluster {', '.join(shown)}{more}"


class Reach(Watcher):
    """Looks from `start` to `stop`, in a thread of its own, whether the cluster answers."""

    def __init__(self, ask: Callable[[], bool | None], begin_s: float) -> None:
        """`ask`: whether a broker answers; None: there is none to ask. `begin_s`: the run's."""
        super().__init__("look whether the cluster answers")
        self._ask = ask
        self._begin_s = begin_s
        self._silences = Silences()
        self._writing = threading.Lock()

    @property
    def excuse(self) -> str | None:
        """As of the last look; see `Silences`."""
        with self._writing:
            return self._silences.excuse

    @property
    def text(self) -> str | None:
        """As of the last look; see `Silences`."""
        with self._writing:
            return self._silences.text

    def overcome(self) -> None:
        """Take in that a bound was kept: that nobody answered before excuses no later one."""
        with self._writing:
            self._silences.overcome(self._now_s())

    def _now_s(self) -> float:
        return time.monotonic() - self._begin_s

    def stop(self) -> None:
        """As of any watcher; nothing of a run that never began."""
        if self._thread.ident is not None:
            super().stop()

    def _close(self) -> None: ...

    def _watch(self) -> None:
        while not self._stopping.wait(LOOK_S):
            begin_s = self._now_s()
            answered = self._ask()
            with self._writing:
                self._silences.take(begin_s, self._now_s(), answered=answered)
