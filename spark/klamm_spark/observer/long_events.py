"""Events of requests with many elements: the writer's thread summarizes them, as that takes up to 100 ms.

All other events are summarized by the thread that serves their connection, see `aggregation`.
"""

from __future__ import annotations

from typing import Any, Final

from klamm import RequestEvent

RESOURCES_OF_ONE_EVENT: Final = 64
"""About this many resources fit into one event: larger ones take more room in a queue."""
_LONG: Final = 500
_BYTES_OF_ONE: Final = 4096


class LongEvent:
    """An event that waits with its messages. It takes the room of `size` events in a queue."""

    __slots__ = ("_event", "size")

    def __init__(self, event: RequestEvent, elements: int) -> None:
        self._event: RequestEvent | None = event
        frames = event.context.size_bytes + event.response_bytes
        self.size = max(1, elements // RESOURCES_OF_ONE_EVENT, frames // _BYTES_OF_ONE)

    def take(self) -> RequestEvent:
        """Return the event. Called once; the caller frees its messages."""
        event, self._event = self._event, None
        assert event is not None, "an event is taken once"
        return event


def long_event(event: RequestEvent) -> LongEvent | None:
    """Return the event, if its request names many things, or an authorizer was asked about many."""
    elements = _elements(event.request) + len(event.context.decisions or ())
    return LongEvent(event, elements) if elements > _LONG else None


def _elements(message: Any) -> int:
    """Return the number of elements in the lists of a message, and in the lists of those lists' first elements."""
    count = 0
    for field in getattr(type(message), "__slots__", ()):
        value = getattr(message, field)
        if isinstance(value, list):
            count += len(value)
            count += sum(_elements(each) for each in value[:2])
    return count
