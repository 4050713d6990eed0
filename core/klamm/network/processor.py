"""`Processor`: a thread that owns connections. Its methods are the interface for other threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Final

from klamm.logs.rate_limited import RateLimitedLog
from klamm.network.acceptor import Acceptor
from klamm.network.channel import KafkaChannel
from klamm.network.connection_looks import ConnectionLook
from klamm.network.reactor import Reactor
from klamm.network.runtime import ListenerRuntime
from klamm.requests.pending import RequestStage
from klamm.runtime.threads import Joinable

log = logging.getLogger("klamm.network")

_PAUSE_S: Final = 0.02


class Processor:
    """Kafka's `Processor`: a thread that runs the turns of its `Reactor` until it is drained.

    The listener makes it. Other threads call all public methods.
    """

    def __init__(self, index: int, runtime: ListenerRuntime) -> None:
        self.index = index
        self._runtime = runtime
        self._reactor = Reactor(index, runtime)
        self.inbox = self._reactor.inbox
        self.created_ns = runtime.clock.monotonic_ns()
        self._turn_failures = RateLimitedLog(log, runtime.scheduler.schedule)
        self._pause = threading.Event()
        self._thread: Joinable | None = None

    def start(self) -> None:
        """Start the thread."""
        self.created_ns = self._runtime.clock.monotonic_ns()
        name = f"klamm-processor-{self._runtime.name}-{self.index}"
        self._thread = self._runtime.threads.start_loop(self._run, self._step, name)

    @property
    def connection_count(self) -> int:
        """Return the number of connections that the processor has or is about to get."""
        return self._reactor.connection_count

    @property
    def channels(self) -> list[KafkaChannel]:
        """Return a snapshot of the connections, to be read only."""
        return list(self._reactor.selector.channels.values())

    @property
    def migrated_connections(self) -> int:
        """Return the number of connections that have migrated to other processors."""
        return self._reactor.migration.migrated_connections

    def idle_ns_until(self, now_ns: int) -> int:
        """Return the time spent waiting in the poller, including a current wait."""
        start_ns = self._reactor.poll_start_ns
        return self._reactor.idle_ns + (max(0, now_ns - start_ns) if start_ns else 0)

    def busy_ns_until(self, now_ns: int) -> int:
        """Return the time since the start that was not spent waiting."""
        return max(0, now_ns - self.created_ns - self.idle_ns_until(now_ns))

    @property
    def setup_ns(self) -> int:
        """Return the time spent on setting up connections: handshakes and authentication."""
        return self._reactor.setup.setup_ns

    @property
    def connections_in_setup(self) -> int:
        """Return the number of connections that are new, or in their handshake or authentication."""
        return len(self.inbox.connections) + len(self._reactor.selector.setup.setting_up)

    @property
    def turn_ns(self) -> int:
        """Return the time, on the monotonic clock, at which the processor last looked for work."""
        return self._reactor.selector.now_ns

    def turn_age_ns(self, now_ns: int) -> int:
        """Return the duration of the current turn; 0 while the processor sleeps."""
        return 0 if self._reactor.poll_start_ns else max(0, now_ns - self._reactor.selector.now_ns)

    def served_until_ns(self) -> int:
        """Return a monotonic time. Requests that had arrived by then have run or are in the request queue.

        Wakes an idle processor, so that the next call returns a later time.
        """
        self.inbox.wakeup()
        return self._reactor.served_until_ns

    def queued_since_ns(self) -> int | None:
        """Return the arrival time of the oldest request that waits for a handler; None if there is none."""
        received = [
            request.received_ns
            for channel in self.channels
            if (request := channel.in_flight) is not None and request.stage is RequestStage.QUEUED
        ]
        return min(received, default=None)

    @property
    def waiting_requests(self) -> int:
        """Return the number of requests that wait here because the request queue had no room: WaitingRequests."""
        return len(self._reactor.waiting)

    @property
    def response_queue_size(self) -> int:
        """Return the number of responses that wait: the metric ResponseQueueSize."""
        return len(self.inbox.calls)

    def listen(self, acceptor: Acceptor) -> None:
        """Accept connections as a step of the loop, from the next turn on."""
        self._reactor.setup.listen(acceptor)

    def stop_listening(self) -> None:
        """Stop accepting; the listening socket may be closed afterwards."""
        self._reactor.setup.stop_listening(waits=self._thread is not None)

    def migrate(self, channel: KafkaChannel, target: Processor) -> None:
        """Move a channel to another processor when it is quiet. Has no effect if the channel closes first."""
        self._reactor.migration.request(channel, target)
        self.inbox.wakeup()

    def adopt(self, channel: KafkaChannel) -> bool:
        """Take over a quiet channel from another processor; return False if this processor has ended."""
        return self.inbox.adopt(channel)

    def retire(self, successors: Sequence[Processor]) -> None:
        """Move all connections to `successors` in turn, each when it becomes quiet, and end when none is left."""
        self.inbox.stop_accepting()
        self._reactor.migration.retire(successors)
        self.inbox.wakeup()

    def close_least_recently_used(self) -> bool:
        """Close the connection with the lowest priority in the next turn; return False if there is none.

        Kafka's processors do so while there are more connections than `max.connections` (KIP-612).
        """
        return self.inbox.evict_one(len(self._reactor.selector.channels))

    def look(self) -> ConnectionLook:
        """Request a description of the connections; the processor's thread makes it in its next turns."""
        look = ConnectionLook(self.index, self._runtime.clock)
        self.inbox.look(look)
        return look

    def close_connection(self, channel: KafkaChannel, reason: str) -> None:
        """Close a connection in the next turn, unless it has moved to another processor."""
        self.inbox.call_soon(channel, lambda one: self._reactor.close_if_here(one, reason), channel)

    def close_connections(self) -> None:
        """Close all connections in the next turn, because the listener goes offline."""
        self.inbox.close_connections()

    def drain(self, deadline_ns: int, grace_end_ns: int) -> None:
        """Finish the current work and end.

        Running requests may finish until `deadline_ns`; requests that wait for data or time, until `grace_end_ns`.
        """
        self._reactor.drain(deadline_ns, grace_end_ns)

    @property
    def ended(self) -> bool:
        """Return True if all connections are closed or have migrated."""
        return self.inbox.ended

    def join(self) -> None:
        """Wait until the thread has ended."""
        if self._thread is not None:
            self._thread.join()
            return
        while not self.ended:
            self._step()

    def _step(self) -> bool:
        if self.ended:
            return False
        has_work = self._reactor.has_work
        if self._reactor.drained():
            self._reactor.end()
        else:
            self._turn()
        return has_work

    def _run(self) -> None:
        while not self._reactor.drained():
            if not self._turn():
                # Only a bug leads here. The pause lets other threads run even if every turn fails.
                self._pause.wait(_PAUSE_S)
        self._reactor.end()

    def _turn(self) -> bool:
        try:
            self._reactor.run_once()
        except Exception as error:
            self._turn_failures.log(
                type(error).__name__,
                logging.ERROR,
                "listener=%s processor=%d: turn failed",
                self._runtime.name,
                self.index,
                error=error,
            )
            return False
        return True
