"""`Recorder`: passes the requests of one listener to the server's recording, on the threads that notify observers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from klamm import ListenerContext, RequestEvent, RequestObserver, setting
from klamm_recording.recording import SHARED_KEY, Recording, wait_until_notified


@dataclass(frozen=True, slots=True)
class RecordingSettings:
    """The limits of the recording."""

    max_requests: int = setting(
        10_000, doc="Maximum number of requests that are kept, the latest of all listeners together.", minimum=1
    )
    max_bytes: int = setting(64 << 20, doc="Maximum bytes of the kept requests, by their size on the wire.", minimum=1)


class Recorder(RequestObserver):
    """The observer `recording` of one listener. All listeners of a server share one recording."""

    def open(self, listener: ListenerContext) -> None:
        settings: RecordingSettings = self.settings
        self._clock = listener.services.clock
        services = listener.services
        self._recording = services.shared.once(
            SHARED_KEY,
            lambda: Recording(settings.max_requests, settings.max_bytes, partial(wait_until_notified, services)),
        )

    def completed(self, event: RequestEvent) -> None:
        self._recording.add((event,), self._clock.wall_ms())

    def completed_many(self, events: Sequence[RequestEvent]) -> None:
        self._recording.add(events, self._clock.wall_ms())
