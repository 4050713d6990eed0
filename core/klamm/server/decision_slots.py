"""`DecisionSlots`, which limits the decisions that a `LaterAuthorizer` makes at the same time. Others wait in turn."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

_Request = TypeVar("_Request")
_Key = TypeVar("_Key")


class DecisionSlots(Generic[_Request, _Key]):
    """Slots for decisions that are being made, and the decisions that wait for a slot.

    A source is the address of a client. It has at most half of the slots and half of the places to wait. Sources take
    turns, and so do the requests of one source. The owner's lock protects all methods.
    """

    def __init__(self, slots: int, places: int) -> None:
        self._slots, self._places = slots, places
        self._taken = 0
        self._taken_of: dict[str, int] = {}
        self._waiting_of: dict[str, int] = {}
        # The keys that wait, by source and request. The first source is the next. Ordered dicts, because a plain dict
        # passes the places of all removed items before it finds its first item.
        self._queues: OrderedDict[str, OrderedDict[_Request, deque[_Key]]] = OrderedDict()
        self.waiting = 0

    def take(self, source: str) -> bool:
        """Take a slot; return False if there is none for the source."""
        if self._taken >= self._slots or not _has_room(self._taken_of, source, self._slots):
            return False
        self._taken += 1
        _count(self._taken_of, source, 1)
        return True

    def free(self, source: str) -> None:
        """Give a slot back."""
        self._taken -= 1
        _count(self._taken_of, source, -1)

    def wait(self, source: str, request: _Request, key: _Key) -> bool:
        """Let a key of a request wait for a slot; return False if there is no place."""
        if self.waiting >= self._places or not _has_room(self._waiting_of, source, self._places):
            return False
        self._queues.setdefault(source, OrderedDict()).setdefault(request, deque()).append(key)
        self.waiting += 1
        _count(self._waiting_of, source, 1)
        return True

    def next(self) -> tuple[_Request, _Key] | None:
        """Take a slot for the next key that waits, and return the key with its request; None if none can begin."""
        # Only few sources can have half of the slots, so this loop is short.
        source = next((one for one in self._queues if self.take(one)), None) if self._taken < self._slots else None
        if source is None:
            return None
        requests = self._queues[source]
        self._queues.move_to_end(source)
        request, keys = requests.popitem(last=False)
        key = keys.popleft()
        if keys:
            requests[request] = keys
        if not requests:
            del self._queues[source]
        self.waiting -= 1
        _count(self._waiting_of, source, -1)
        return request, key

    def drop(self, source: str, request: _Request) -> int:
        """Remove the waiting keys of a request; return their number."""
        requests = self._queues.get(source)
        if requests is None:
            return 0
        dropped = len(requests.pop(request, ()))
        if not requests:
            del self._queues[source]
        self.waiting -= dropped
        _count(self._waiting_of, source, -dropped)
        return dropped

    def drop_all(self) -> list[_Request]:
        """Remove all keys that wait; return their requests."""
        requests = [request for queue in self._queues.values() for request in queue]
        self._queues, self._waiting_of, self.waiting = OrderedDict(), {}, 0
        return requests


def _has_room(counts: dict[str, int], source: str, maximum: int) -> bool:
    return counts.get(source, 0) < max(1, maximum // 2)


def _count(counts: dict[str, int], source: str, change: int) -> None:
    counts[source] = counts.get(source, 0) + change
    if not counts[source]:
        del counts[source]
