"""`AcceptorLoop`: chooses the thread that runs the acceptor of a listener."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from klamm.network.acceptor_thread import AcceptorThread

if TYPE_CHECKING:
    from klamm.network.acceptor import Acceptor
    from klamm.network.processor import Processor
    from klamm.network.runtime import ListenerRuntime


class AcceptorLoop:
    """A single processor runs the acceptor on its own thread; with several processors, an acceptor thread does."""

    def __init__(self, acceptor: Acceptor, runtime: ListenerRuntime) -> None:
        self._acceptor = acceptor
        self._runtime = runtime
        self._thread: AcceptorThread | None = None
        self._processor: Processor | None = None

    def begin(self, processors: Sequence[Processor]) -> None:
        """Accept connections for these processors."""
        if len(processors) == 1:
            self._processor = processors[0]
            self._processor.listen(self._acceptor)
            return
        self._thread = AcceptorThread(self._acceptor, self._runtime.clock, self._runtime.limits.poller)
        self._thread.start()

    def pause(self) -> None:
        """Stop accepting until `begin`; the listening socket stays open."""
        if self._processor is not None:
            self._processor.stop_listening()
        if self._thread is not None:
            self._thread.stop()
        self._processor = self._thread = None
