"""Counting, for observers, the requests of busy connections.

Such requests are answered so fast that telling of each would cost a good part of answering it: observers that set
`repeats_after` are told of the first ones of a second, of a sample of the others, and how many there were besides.
One processor thread owns it all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm.api.context import RequestContext, Responder
from klamm.api.transport import Buffer
from klamm.requests.observers import RequestObservers

if TYPE_CHECKING:
    from klamm.network.channel import KafkaChannel

_WINDOW_NS: Final = 1_000_000_000
_SWEEP_NS: Final = _WINDOW_NS // 4
_SAMPLE_EVERY: Final = 16
_SAMPLE_EVERY_AT_MOST: Final = 256
"""Of the requests of one tally every 16th is told of, then one in twice as many, until it is every 256th."""
_KEPT_UP_TO_BYTES: Final = 2048
"""The messages of a larger first request are let go: nobody knows for how many connections they would be held."""


class Tally:
    """Requests of one channel, API and client id in one second.

    `alone` more are told of by themselves, `count` not yet at all. A channel has one for each API: what comes under
    another client id meanwhile, as from a proxy that joins its clients' requests, is told of by itself.
    """

    __slots__ = (
        "alone",
        "client_id",
        "count",
        "end_ns",
        "first",
        "last_ns",
        "request_bytes",
        "response_bytes",
        "sample_every",
        "until_sample",
    )

    def __init__(self, end_ns: int, alone: int, client_id: str | None) -> None:
        self.client_id = client_id
        self.end_ns = end_ns
        self.alone = alone
        self.sample_every = _SAMPLE_EVERY
        self.until_sample = _SAMPLE_EVERY - 1
        self.count = self.request_bytes = self.response_bytes = self.last_ns = 0
        self.first: RequestContext | None = None

    def begin(self, request: RequestContext, now_ns: int) -> None:
        """Count the first request; the pump adds the others, each answered without an error."""
        self.first = request
        if request.size_bytes + request.response_bytes > _KEPT_UP_TO_BYTES:
            request.frame = request.response = None
        self.count = 1
        self.request_bytes = request.size_bytes
        self.response_bytes = request.response_bytes
        self.last_ns = now_ns


class Repeats:
    """The tallies of one processor's channels. `after` is `RequestObserver.repeats_after`."""

    def __init__(self, observation: RequestObservers, responder: Responder, after: int) -> None:
        self._observation = observation
        self._responder = responder
        self._after = after
        self._countable = [observation.may_repeat(api_key) for api_key in range(128)]
        self._counting: set[KafkaChannel] = set()
        self._next_sweep_ns = 0

    def tally(self, channel: KafkaChannel, api_key: int, now_ns: int, client_id: str | None) -> Tally | None:
        """Where the channel's next request is counted if all goes well, or None if it is to be told of."""
        tally = channel.tallies.get(api_key)
        if tally is None or now_ns >= tally.end_ns:
            if not self._countable[api_key]:
                return None
            tally = self._begin(channel, api_key, tally, now_ns, client_id)
        elif tally.client_id != client_id:
            return None
        if tally.alone:
            tally.alone -= 1
            return None
        if not tally.until_sample:
            tally.sample_every = min(2 * tally.sample_every, _SAMPLE_EVERY_AT_MOST)
            tally.until_sample = tally.sample_every - 1
            return None
        tally.until_sample -= 1
        return tally

    def answered(self, channel: KafkaChannel, frame: Buffer, kept: RequestContext, now_ns: int) -> None:
        """A request has got the answer that was kept of the equal request `kept`.

        While more such follow, the channel alone counts them.
        """
        self._take_in(channel, now_ns)
        channel.repeating = None
        tally = channel.tallies.get(kept.api_key)
        if tally is None or now_ns >= tally.end_ns:
            tally = self._begin(channel, kept.api_key, tally, now_ns, kept.client_id)
        elif tally.client_id != kept.client_id:
            self._observation.completed([self._request(channel, frame, kept, now_ns)])
            return
        if tally.count:
            tally.count += 1
            tally.request_bytes += kept.size_bytes
            tally.response_bytes += kept.response_bytes
            tally.last_ns = now_ns
        elif tally.alone:
            tally.alone -= 1
            self._observation.completed([self._request(channel, frame, kept, now_ns)])
        else:
            tally.begin(self._request(channel, frame, kept, now_ns), now_ns)
        if tally.count:
            channel.repeating = kept

    @staticmethod
    def _take_in(channel: KafkaChannel, now_ns: int) -> None:
        """Add what the channel has counted to its tally."""
        kept, repeated = channel.repeating, channel.repeated
        if kept is not None and repeated:
            tally = channel.tallies[kept.api_key]
            tally.count += repeated
            tally.request_bytes += repeated * kept.size_bytes
            tally.response_bytes += repeated * kept.response_bytes
            tally.last_ns = now_ns
            channel.repeated = 0

    def _begin(
        self, channel: KafkaChannel, api_key: int, old: Tally | None, now_ns: int, client_id: str | None
    ) -> Tally:
        if old is not None:
            self._end(channel, old, now_ns)
        tally = channel.tallies[api_key] = Tally(now_ns + _WINDOW_NS, self._after, client_id)
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

    def _end(self, channel: KafkaChannel, tally: Tally, now_ns: int) -> None:
        """A tally is over: tell of it."""
        if channel.repeating is not None and channel.tallies.get(channel.repeating.api_key) is tally:
            self._take_in(channel, now_ns)
            channel.repeating = None
        if tally.first is not None:
            self._observation.repeated(
                tally.first, tally.count, tally.request_bytes, tally.response_bytes, tally.last_ns
            )

    def sweep(self, now_ns: int) -> None:
        """Tell of the seconds that are over; looks for them four times a second."""
        if now_ns < self._next_sweep_ns:
            return
        self._next_sweep_ns = now_ns + _SWEEP_NS
        for channel in list(self._counting):
            for api_key, tally in list(channel.tallies.items()):
                if now_ns >= tally.end_ns:
                    self._end(channel, tally, now_ns)
                    del channel.tallies[api_key]
            if not channel.tallies:
                self._counting.discard(channel)

    def closed(self, channel: KafkaChannel, now_ns: int) -> None:
        """Tell of all that a channel has."""
        for tally in channel.tallies.values():
            self._end(channel, tally, now_ns)
        channel.tallies.clear()
        self._counting.discard(channel)
