"""Counting, for observers, the requests that are answered from `KeptAnswers`.

They are answered so fast that telling of each would cost more than answering it. One processor thread owns it all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm.context import RequestContext, Responder
from klamm.contracts import Buffer
from klamm.network.observation import Observation

if TYPE_CHECKING:
    from klamm.network.channel import KafkaChannel

_WINDOW_NS: Final = 1_000_000_000


class Tally:
    """Equal requests of one channel in one second: `alone` more are told of by themselves, `count` not yet at all."""

    __slots__ = ("alone", "count", "end_ns", "first", "last_ns")

    def __init__(self, end_ns: int, alone: int) -> None:
        self.end_ns = end_ns
        self.alone = alone
        self.count = 0
        self.last_ns = 0
        self.first: RequestContext | None = None


class Repeats:
    """The tallies of one processor's channels. `after` is `RequestObserver.repeats_after`."""

    def __init__(self, observation: Observation, responder: Responder, after: int) -> None:
        self._observation = observation
        self._responder = responder
        self._after = after
        self._counting: set[KafkaChannel] = set()
        self._next_sweep_ns = 0

    def note(self, channel: KafkaChannel, frame: Buffer, kept: RequestContext, now_ns: int) -> None:
        """A request equal to `kept` has been answered on the channel."""
        tally = channel.tallies.get(kept)
        if tally is None or now_ns >= tally.end_ns:
            tally = self._begin(channel, kept, tally, now_ns)
        tally.last_ns = now_ns
        if tally.count:
            tally.count += 1
        elif tally.alone:
            tally.alone -= 1
            self._observation.completed([self._request(channel, frame, kept, now_ns)])
        else:
            tally.first = self._request(channel, frame, kept, now_ns)
            tally.count = 1

    def _begin(self, channel: KafkaChannel, kept: RequestContext, old: Tally | None, now_ns: int) -> Tally:
        if old is not None:
            self._tell(old)
        tally = channel.tallies[kept] = Tally(now_ns + _WINDOW_NS, self._after)
        self._counting.add(channel)
        return tally

    def _request(self, channel: KafkaChannel, frame: Buffer, kept: RequestContext, now_ns: int) -> RequestContext:
        correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
        request = RequestContext(
            channel.connection,
            self._responder,
            kept.api_key,
            kept.api_version,
            correlation_id,
            kept.client_id,
            kept.size_bytes,
        )
        request.handler = kept.handler
        request.frame = kept.frame
        request.response = kept.response
        request.response_bytes = kept.response_bytes
        request.error_code = kept.error_code
        request.received_ns = request.handler_start_ns = request.local_end_ns = request.completed_ns = now_ns
        return request

    def _tell(self, tally: Tally) -> None:
        if tally.first is not None:
            self._observation.repeated(tally.first, tally.count, tally.last_ns)

    def sweep(self, now_ns: int) -> None:
        """Tell of the seconds that are over; does nothing more than once a second."""
        if now_ns < self._next_sweep_ns:
            return
        self._next_sweep_ns = now_ns + _WINDOW_NS
        for channel in list(self._counting):
            for kept, tally in list(channel.tallies.items()):
                if now_ns >= tally.end_ns:
                    self._tell(tally)
                    del channel.tallies[kept]
            if not channel.tallies:
                self._counting.discard(channel)

    def closed(self, channel: KafkaChannel) -> None:
        """Tell of all that a channel has."""
        for tally in channel.tallies.values():
            self._tell(tally)
        channel.tallies.clear()
        self._counting.discard(channel)
