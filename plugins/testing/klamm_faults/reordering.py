"""`Reordering`: a request waits until a request of another connection has overtaken it."""

from __future__ import annotations

import threading

from klamm import RequestContext
from klamm.filters import Release


class Reordering:
    """The request of a rule that waits, if one does. Any thread may call it."""

    def __init__(self) -> None:
        # Protects the waiting request.
        self._lock = threading.Lock()
        self._waiting: tuple[str, Release] | None = None

    def wait(self, context: RequestContext) -> Release:
        """Note a request as the waiting one; an earlier one continues."""
        release = Release()
        with self._lock:
            earlier, self._waiting = self._waiting, (context.connection.connection_id, release)
        if earlier is not None:
            earlier[1].release()
        return release

    def overtaken_by(self, context: RequestContext) -> Release | None:
        """Return the release of the waiting request, to be called when this one is answered; None if there is none."""
        if self._waiting is None:
            return None
        with self._lock:
            if self._waiting is None or self._waiting[0] == context.connection.connection_id:
                return None
            (_, release), self._waiting = self._waiting, None
            return release
