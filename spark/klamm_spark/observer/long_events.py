"""`LongEvent`: events of requests with many elements. Only the writer's thread summarizes them, because it takes up to
100 ms.

The thread that serves a connection summarizes all its other events, see `aggregation`.
"""

from __future__ import annotations

from typing import Any, Final

from klamm import RequestEvent

RESOURCES_OF_ONE_EVENT: Final = 64
"""About this many resources fit into one event. An event with more takes more room in a queue."""
_LONG: Final = 500
_BYTES_OF_ONE: Final = 4096


class LongEvent:
    """An event in a queue that still has its messages. It takes the room of `size` events."""

    __slots__ = ("_event", "size")

    def __init__(self, event: RequestEvent, elements: int) -> None:
        self._event: RequestEvent | None = event
        frames = event.context.size_bytes + event.response_bytes
        self.size = max(1, elements // RESOURCES_OF_ONE_EVENT, frames // _BYTES_OF_ONE)

    def take(self) -> RequestEvent:
        """Return the event. The caller calls this once, and frees the event's messages."""
        event, self._event = self._event, None
        assert event is not None, "an event is taken once"
        return event


def long_event(event: RequestEvent) -> LongEvent | None:
    """Return a LongEvent if the request names many things, or caused many decisions of an authorizer; else None."""
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
