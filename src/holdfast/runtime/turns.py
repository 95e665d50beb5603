"""What waits for its turn, by whom it is for: who has thousands waits for himself.

Owns the order: clients by turns, what one client has in its own order. It knows nothing of what is
done in a turn.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """Each is in it once, and leaves it with its turn."""

    def __init__(self) -> None:
        # Of each the first has the next turn; a client is the last one then.
        self._clients: OrderedDict[Hashable, OrderedDict[T, None]] = OrderedDict()
        self._client_of: dict[T, Hashable] = {}

    def __len__(self) -> int:
        return len(self._client_of)

    def __contains__(self, each: T) -> bool:
        return each in self._client_of

    def add(self, each: T, client: Hashable) -> None:
        """Let it wait for its turn; if it does already, it keeps its place."""
        if each not in self._client_of:
            self._client_of[each] = client
            of_client = self._clients.get(client)
            if of_client is None:
                of_client = self._clients[client] = OrderedDict()
            of_client[each] = None

    def take(self) -> T:
        """Return whose turn it is; it waits no longer."""
        client, of_client = next(iter(self._clients.items()))
        each = next(iter(of_client))
        self._clients.move_to_end(client)
        self.remove(each)
        return each

    def remove(self, each: T) -> None:
        """Forget it, if it is here."""
        if each in self._client_of:
            client = self._client_of.pop(each)
            of_client = self._clients[client]
            del of_client[each]
            if not of_client:
                del self._clients[client]
