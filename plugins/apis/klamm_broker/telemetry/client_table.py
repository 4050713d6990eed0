"""`ClientTable`: the clients that push metrics, each with its owner, in the order in which they were seen."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class OwnedClient(Protocol):
    """The attributes of a client that the table uses; the table sets `seen_ms`."""

    id: bytes
    owner: str
    seen_ms: int


_C = TypeVar("_C", bound=OwnedClient)


class ClientTable(Generic[_C]):
    """At most so many clients. For one more, the owner with most of them loses the one that was not seen for longest.

    The caller holds a lock.
    """

    def __init__(self, max_clients: int) -> None:
        self._max_clients = max_clients
        self._clients: dict[bytes, _C] = {}
        self._by_owner: dict[str, OrderedDict[bytes, _C]] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[_C]:
        return iter(list(self._clients.values()))

    def get(self, instance_id: bytes) -> _C | None:
        """Return the client, or None."""
        return self._clients.get(instance_id)

    @property
    def most_of_one_owner(self) -> int:
        """Return how many clients the owner has that has most."""
        return max(map(len, list(self._by_owner.values())), default=0)

    def put(self, client: _C) -> _C | None:
        """Add a client, in place of the one with its id. Returns one that has lost its place by that."""
        self.remove(client.id)
        lost = None
        if len(self._clients) >= self._max_clients:
            lost = next(iter(max(self._by_owner.values(), key=_precedence).values()))
            self.remove(lost.id)
        self._clients[client.id] = client
        self._by_owner.setdefault(client.owner, OrderedDict())[client.id] = client
        return lost

    def seen(self, client: _C, now_ms: int) -> None:
        """Note that a client was there now."""
        client.seen_ms = now_ms
        self._by_owner[client.owner].move_to_end(client.id)

    def remove(self, instance_id: bytes) -> None:
        """Forget a client, if it is there."""
        client = self._clients.pop(instance_id, None)
        if client is not None:
            of_owner = self._by_owner[client.owner]
            del of_owner[instance_id]
            if not of_owner:
                del self._by_owner[client.owner]


def _precedence(clients: OrderedDict[bytes, _C]) -> tuple[int, int]:
    """Return the order of owners: most clients first, then the client that was not seen for longest."""
    return len(clients), -next(iter(clients.values())).seen_ms
