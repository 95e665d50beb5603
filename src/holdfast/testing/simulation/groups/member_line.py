"""A member's connection to one broker after the other. Owns dialling, and no answer's meaning."""

from __future__ import annotations

from typing import Any, Final

from holdfast.clients.group_member.light_member import Place
from holdfast.runtime.dial import Connection, dial
from holdfast.runtime.ports import Runtime
from holdfast.wire.schema import Request

DIAL_MS: Final = 2_000


class MemberLine:
    """One connection at a time."""

    def __init__(self, runtime: Runtime, client_id: str) -> None:
        self._runtime: Final = runtime
        self._client_id: Final = client_id
        self._connection: Connection | None = None
        self._place: Place | None = None

    async def ask(
        self, place: Place, request: Request, *, timeout_ms: int, version: int | None = None
    ) -> Any:
        """Ask a broker. OSError: there is no answer, and whether it did as asked is unknown."""
        connection = self._connection
        if connection is None or not connection.is_open or self._place != place:
            self.close()
            connection = self._connection = await dial(
                self._runtime, *place, self._client_id, timeout_ms=DIAL_MS
            )
            self._place = place
        return await connection.send(request, version=version, timeout_ms=timeout_ms)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = self._place = None
