"""A line in the log once a minute, however often there is reason for it."""

from __future__ import annotations

import asyncio
import logging
from logging import Logger
from typing import Final

PAUSE_S: Final = 60.0


class Seldom:
    """One kind of message; the next one that is written says how many were not."""

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._next = float("-inf")  # loop time, seconds
        self._silent = 0

    def warning(self, text: str, *values: object) -> None:
        self._say(logging.WARNING, text, values)

    def info(self, text: str, *values: object) -> None:
        self._say(logging.INFO, text, values)

    def _say(self, level: int, text: str, values: tuple[object, ...]) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._next:
            self._silent += 1
            return
        self._next = now + PAUSE_S
        silent, self._silent = self._silent, 0
        more = f" ({silent} more times since it was last said)" if silent else ""
        self._logger.log(level, "%s%s", text % values, more)
