"""`Streams`: the open streams of events. Pages show views that change with them.

A stream is answered on the thread of its connection. A page that asks again and again would keep this thread too. A
stream has at most one event on its way: while a client does not read, no event is made, and after some time the
connection is cut.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from klamm.runtime import Clock

MAX_STREAMS: Final = 32
MAX_OF_ONE_USER: Final = 8
_FRESH_NS: Final = 1_000_000_000
Look: TypeAlias = Callable[[], tuple[str, Any]]
"""Returns the kind and the content of a stream's next event: `view`, `problem`, or `end`, which is the last one."""


class TooManyStreamsError(Exception):
    """Raised if no further stream can be opened now."""


class Stream:
    """One stream. Iterate over its events, as bytes, and then close it."""

    def __init__(self, user: str, first: Any, look: Look, every_s: float, left: Callable[[Stream], None]) -> None:
        """`first` is the view at the beginning. `left` is called when the stream is closed."""
        self.user = user
        self.ends = threading.Event()
        self._first = first
        self._look = look
        self._every_s = every_s
        self._left = left

    def __iter__(self) -> Iterator[bytes]:
        last = b""
        kind, content = "view", self._first
        while True:
            event = b"event: %s\ndata: %s\n\n" % (kind.encode(), json.dumps(content).encode())
            # A comment shows the client that the stream is alive, and this server if the client has left.
            yield event if event != last else b": the same\n\n"
            last = event
            if kind == "end" or self.ends.wait(self._every_s):
                return
            kind, content = self._look()

    def close(self) -> None:
        """Make room for another stream."""
        self._left(self)


class Streams:
    """The open streams. Any thread may call it."""

    def __init__(self) -> None:
        # Protects the list.
        self._lock = threading.Lock()
        self._open: list[Stream] = []

    def open(self, user: str, first: Any, look: Look, every_s: float) -> Stream:
        """Return a new stream, which looks every so many seconds. The user's oldest may end to make room.

        Raises TooManyStreamsError.
        """
        with self._lock:
            own = [each for each in self._open if each.user == user]
            # A stream ends late if its client does not read.
            if len(self._open) >= MAX_STREAMS or len(own) >= 2 * MAX_OF_ONE_USER:
                raise TooManyStreamsError(f"{len(self._open)} streams are open, {len(own)} of this user")
            going = [each for each in own if not each.ends.is_set()]
            for each in going[: max(0, len(going) + 1 - MAX_OF_ONE_USER)]:
                each.ends.set()
            made = Stream(user, first, look, every_s, self._remove)
            self._open.append(made)
            return made

    def _remove(self, stream: Stream) -> None:
        with self._lock:
            self._open.remove(stream)

    def end_all(self) -> None:
        """End all streams."""
        with self._lock:
            for each in self._open:
                each.ends.set()


class Shared:
    """A view that is the same for all who may see it: for streams it is computed at most once a second, whatever their
    number. Any thread may call it.
    """

    def __init__(self, clock: Clock, compute: Callable[[], Any]) -> None:
        self._clock = clock
        self._compute = compute
        # Held while one thread computes; the others wait for its result.
        self._lock = threading.Lock()
        self._found: Any = None
        self._at_ns = -_FRESH_NS

    def __call__(self, *, is_live: bool) -> Any:
        """Return the view as it is now, or within the last second for a stream."""
        if not is_live:
            return self._compute()
        with self._lock:
            if self._clock.monotonic_ns() - self._at_ns >= _FRESH_NS:
                self._found = self._compute()
                self._at_ns = self._clock.monotonic_ns()
            return self._found
