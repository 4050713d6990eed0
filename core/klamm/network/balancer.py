"""`LoadBalancer`, which measures the load of a listener's processors, and moves connections as the assigner decides."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final, Protocol

from klamm.api.context import Address
from klamm.api.dispatch import ConnectionLoad, ProcessorAssigner, ProcessorLoad
from klamm.network.channel import KafkaChannel
from klamm.network.inbox import Inbox
from klamm.runtime.clock import Clock

log = logging.getLogger("klamm.network")

_STUCK_NS: Final = 100_000_000


class BalancedProcessor(Protocol):
    """The methods of a processor that the balancer uses."""

    index: int
    inbox: Inbox

    @property
    def connection_count(self) -> int: ...

    @property
    def channels(self) -> list[KafkaChannel]: ...

    def idle_ns_until(self, now_ns: int) -> int: ...

    def turn_age_ns(self, now_ns: int) -> int: ...

    def migrate(self, channel: KafkaChannel, target: Any) -> None: ...


class LoadBalancer:
    """The balancer of one listener. The acceptor calls `choose` on its thread, the scheduler calls `tick` on its own.

    Both only read the counters of channels. Loads are measured only from the first `tick` on, and only while there are
    several processors.
    """

    def __init__(self, name: str, assigner: ProcessorAssigner, clock: Clock) -> None:
        self._name = name
        self._assigner = assigner
        self._clock = clock
        self.processors: Sequence[BalancedProcessor] = ()
        self._measured: Sequence[BalancedProcessor] = ()
        self._measured_ns = 0
        self._idle_ns: dict[BalancedProcessor, int] = {}
        self._seen: dict[KafkaChannel, tuple[int, int]] = {}
        self._rates: dict[BalancedProcessor, tuple[float, float]] = {}

    def choose(self, peer: Address) -> Sequence[BalancedProcessor]:
        """Return the processors that may take a new connection, in the order in which to try them.

        Processors that are stuck in a turn are left out, unless all are. The assigner cannot leave them out, because
        the loads are up to an interval old.
        """
        now_ns = self._clock.monotonic_ns()
        processors = [p for p in self.processors if p.turn_age_ns(now_ns) < _STUCK_NS] or self.processors
        rates = self._rates
        loads = [ProcessorLoad(p.connection_count, *rates.get(p, (0.0, 0.0))) for p in processors]
        first = self._assigner.assign(peer, loads) % len(processors)
        return [*processors[first:], *processors[:first]]

    def tick(self) -> None:
        """Compute the loads of the last interval and move connections. Called at the end of each interval."""
        processors = self.processors
        if len(processors) < 2:
            self._measured = ()
            return
        now_ns = self._clock.monotonic_ns()
        if processors is not self._measured:
            self._begin(processors, now_ns)
            return
        seconds = max(now_ns - self._measured_ns, 1) / 1e9
        self._measured_ns = now_ns
        loads, connections, channels, seen = [], [], {}, {}
        for processor in processors:
            own = []
            for channel in processor.channels:
                counters = _counters(channel)
                before = self._seen.get(channel, (0, 0))
                seen[channel] = counters
                connection_id = channel.connection.connection_id
                channels[connection_id] = (processor, channel)
                bytes_per_s = (counters[0] - before[0]) / seconds
                own.append(ConnectionLoad(connection_id, bytes_per_s, (counters[1] - before[1]) / 1e9 / seconds))
            idle_ns = processor.idle_ns_until(now_ns)
            busy = min(1.0, max(0.0, 1.0 - (idle_ns - self._idle_ns[processor]) / 1e9 / seconds))
            self._idle_ns[processor] = idle_ns
            self._rates[processor] = (sum(load.bytes_per_s for load in own), busy)
            loads.append(ProcessorLoad(processor.connection_count, *self._rates[processor]))
            connections.append(own)
        self._seen = seen
        for move in self._assigner.rebalance(loads, connections):
            source, channel = channels[move.connection_id]
            target = processors[move.processor]
            if target is not source:
                log.info(
                    "listener=%s connection_id=%s: migrates to processor %d",
                    self._name,
                    move.connection_id,
                    target.index,
                )
                source.migrate(channel, target)

    def _begin(self, processors: Sequence[BalancedProcessor], now_ns: int) -> None:
        self._measured, self._measured_ns = processors, now_ns
        self._idle_ns = {processor: processor.idle_ns_until(now_ns) for processor in processors}
        self._seen = {channel: _counters(channel) for processor in processors for channel in processor.channels}
        self._rates = {}


def spread(sources: Sequence[BalancedProcessor], targets: Sequence[BalancedProcessor]) -> None:
    """Move connections from `sources` to `targets`, so that all processors get about the same number.

    A connection moves when it has no request or response in flight. Channels with an `AnswerQueue` stay, because they
    are bound to their processor.
    """
    if not sources or not targets:
        return
    channels = {source: source.channels for source in sources}
    share = -(-sum(map(len, channels.values())) // (len(sources) + len(targets)))
    moves = 0
    for source, own in channels.items():
        for channel in [one for one in own if one.answers is None][: max(0, len(own) - share)]:
            source.migrate(channel, targets[moves % len(targets)])
            moves += 1


def _counters(channel: KafkaChannel) -> tuple[int, int]:
    connection = channel.connection
    return connection.received_bytes + connection.sent_bytes, channel.busy_ns
