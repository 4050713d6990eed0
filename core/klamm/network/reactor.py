"""`Reactor`: the turns of a processor's loop, in Kafka's order. The failure of a channel does not end a turn."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from klamm.network.admission import release_gates
from klamm.network.channel import KafkaChannel, describe
from klamm.network.connection_setup import ConnectionSetup
from klamm.network.expiry import ChannelExpiry
from klamm.network.inbox import Inbox
from klamm.network.migration import ChannelMigration
from klamm.network.pipelined import lifecycle_of
from klamm.network.poller import Waker, make_poller
from klamm.network.runtime import ListenerRuntime
from klamm.network.selector import Selector
from klamm.requests.ledger import RequestLedger
from klamm.requests.pending import PendingRequest
from klamm.requests.pipeline import RequestPipeline
from klamm.requests.request_channel import WaitingRequests

if TYPE_CHECKING:
    from klamm.network.proxy.admission import ProxyAdmission

log = logging.getLogger("klamm.network")

_POLL_S: Final = 0.3
# The interval at which channels are checked for age and idleness.
_LOOK_EVERY_NS: Final = 20_000_000
_SERVER_STOPS: Final = "server stops"
_OFFLINE: Final = "the listener goes offline"


class Reactor:
    """The loop of a processor.

    Its methods run on the processor's thread, unless they say otherwise. `inbox` holds the items from other threads.

    All requests that had arrived by `served_until_ns` have been started. That time does not advance while a channel has
    more requests than one turn may serve.
    """

    def __init__(self, index: int, runtime: ListenerRuntime) -> None:
        self._runtime = runtime
        self._clock = runtime.clock
        # The poller comes before the waker. If no descriptor is left for the waker, the poller is dropped, which closes
        # it.
        poller = runtime.threads.watch(make_poller(runtime.limits.poller))
        self._waker = Waker(runtime.limits.poller)
        self.inbox = Inbox(self._waker, runtime.limits.max_incoming)
        self.selector = Selector(poller, self._waker, runtime, runtime.threads.shuffle, self.inbox.awake)
        self.expiry = ChannelExpiry(runtime.limits, self.selector.channels, self.selector.setup.setting_up)
        self._recorder = runtime.new_recorder()
        ledger = RequestLedger(
            runtime.clock, runtime.context, self._recorder, runtime.requests.slow_log, runtime.observers
        )
        self.pipeline = RequestPipeline(runtime.requests, ledger, self._enqueue, self._deliver)
        self.waiting = WaitingRequests(runtime.request_channel, self.inbox.wakeup, self.pipeline.give_up)
        self.lifecycle = lifecycle_of(runtime)(runtime, self.selector, self.pipeline, self.inbox.call_soon)
        self._delayed_closes = self.lifecycle.delayed_closes.heap
        self.migration = ChannelMigration(self.selector, self.lifecycle)
        self.setup = ConnectionSetup(
            index, runtime, self.selector, self.inbox, self._waker.wake, self._process_completed
        )
        self._proxied = self._proxy_admission()
        self._next_look_ns = 0
        self._draining = False
        self._drain_deadline_ns = self._grace_end_ns = 0
        self.idle_ns = 0
        self.poll_start_ns = 0
        self.served_until_ns = self._polled_ns = runtime.clock.monotonic_ns()

    def _proxy_admission(self) -> ProxyAdmission | None:
        if self._runtime.proxies is None:
            return None
        # Imported here, because few listeners have proxies and the import slows the start.
        from klamm.network.proxy.admission import ProxyAdmission

        return ProxyAdmission(
            self._runtime, self.selector, self.lifecycle, self.inbox.call_soon, self.setup.connection_id
        )

    def _enqueue(self, request: PendingRequest) -> None:
        self.waiting.send(request)

    def _deliver(self, request: PendingRequest) -> None:
        self.inbox.call_soon(request.channel, self.lifecycle.answered, request)

    @property
    def connection_count(self) -> int:
        """Return the number of connections that the processor has or is about to get. Any thread may call this."""
        return len(self.selector.channels) + len(self.inbox.connections) + len(self.inbox.adopted)

    def drain(self, deadline_ns: int, grace_end_ns: int) -> None:
        """Let the loop end when the current work is finished. Any thread may call this.

        Running requests may finish until `deadline_ns`; requests that wait for data or time, until `grace_end_ns`.
        The earliest times of several calls count. Has no effect if the loop has ended.
        """
        if self.inbox.ended:
            return
        self.inbox.stop_accepting()
        if self._draining:
            deadline_ns = min(deadline_ns, self._drain_deadline_ns)
            grace_end_ns = min(grace_end_ns, self._grace_end_ns)
        self._drain_deadline_ns = deadline_ns
        self._grace_end_ns = grace_end_ns
        self._draining = True
        self._waker.wake()

    def end(self) -> None:
        """Close all connections and the selector. The thread calls this at its end."""
        self.setup.forget_listening()
        self.inbox.end()
        self._close_connections(_SERVER_STOPS)
        self.pipeline.close()
        if self._recorder is not None and self._runtime.end_recorder is not None:
            self._runtime.end_recorder(self._recorder)
        self.selector.close_all()
        self._waker.close()

    def _close_connections(self, reason: str) -> None:
        for channel in [*self.selector.channels.values(), *self.selector.closing, *self.inbox.adopted]:
            self.lifecycle.close(channel, reason)
        for sock, peer, gates in self.inbox.take_all_connections():
            sock.close()
            release_gates(self._runtime.context, gates, peer)

    def run_once(self) -> None:
        """Run one turn, in the order of Kafka's `Processor.run`, except that new connections come last."""
        inbox = self.inbox
        while inbox.adopted:
            self._adopt(inbox.adopted.popleft())
        if inbox.is_closing_connections:
            self._close_connections(_OFFLINE)
        if inbox.calls:
            self._process_calls()
        if self.migration.has_work:
            for channel in self.migration.step(self._adopt, draining=self._draining):
                self.expiry.forget(channel)
        if self.waiting:
            self.waiting.retry()
        self._poll()
        self._process_completed()
        self.setup.step()
        if inbox.evictions or self._delayed_closes or self.selector.now_ns >= self._next_look_ns:
            self._next_look_ns = self.selector.now_ns + _LOOK_EVERY_NS
            self._close_excess_connections()
        if inbox.looks:
            look = inbox.looks.popleft()
            if not look.step(self.selector):
                inbox.looks.append(look)
        if self.lifecycle.unfinished:
            self.selector.charge_none()
            self.lifecycle.take_turns()

    def _process_calls(self) -> None:
        self.selector.charge_none()
        for _ in range(len(calls := self.inbox.calls)):
            channel, callback, argument = calls.popleft()
            try:
                callback(argument)
            except Exception as error:
                self.lifecycle.fail(channel, error)
            self.selector.charge(channel)

    def _poll(self) -> None:
        timeout_s = _POLL_S
        if self._delayed_closes:
            timeout_s = min(timeout_s, max(0.0, (self._delayed_closes[0].due_ns - self._clock.monotonic_ns()) / 1e9))
        if self._draining:
            timeout_s = min(timeout_s, 0.01)
        paused_until_ns = self.setup.paused_until_ns
        if paused_until_ns:
            timeout_s = min(timeout_s, max(0.0, (paused_until_ns - self._clock.monotonic_ns()) / 1e9))
        # From now on a new item wakes this thread. `has_work` sees the earlier items.
        self.inbox.going_to_sleep()
        selector = self.selector
        if self.has_work:
            timeout_s = 0.0
        if not self.lifecycle.unfinished:
            self.served_until_ns, self._polled_ns = self._polled_ns, selector.now_ns
        start_ns = self.poll_start_ns = self._clock.monotonic_ns() if timeout_s else 0
        selector.poll(timeout_s)
        self.inbox.awake()
        if timeout_s:
            self.poll_start_ns = 0
            self.idle_ns += selector.now_ns - start_ns

    def _process_completed(self) -> None:
        selector, lifecycle = self.selector, self.lifecycle
        if selector.completed_receives:
            channels, selector.completed_receives = selector.completed_receives, []
            monotonic_ns = self._clock.monotonic_ns
            for channel in channels:
                lifecycle.advance(channel)
                # `Selector.charge`, inlined: this runs for every request. A close in `advance` charges it too.
                ended_ns = monotonic_ns()
                channel.busy_ns += ended_ns - selector.charged_until_ns
                selector.charged_until_ns = ended_ns
        if selector.completed_sends:
            channels, selector.completed_sends = selector.completed_sends, []
            for channel in channels:
                try:
                    lifecycle.sent(channel)
                except Exception as error:
                    lifecycle.fail(channel, error)
                selector.charge(channel)
        if selector.proxied and self._proxied is not None:
            self._proxied.process()
        if selector.failed_handshakes:
            failed, selector.failed_handshakes = selector.failed_handshakes, []
            for channel, cause in failed:
                lifecycle.authentication.fail_handshake(channel, cause)
        if selector.disconnected:
            channels, selector.disconnected = selector.disconnected, []
            for channel in channels:
                lifecycle.close(channel, channel.close_reason)

    # ---- connections

    def close_if_here(self, channel: KafkaChannel, reason: str) -> None:
        """Close a channel, unless it has moved to another processor."""
        if self.selector.channels.get(channel.descriptor) is channel:
            self.lifecycle.close(channel, reason)

    def _adopt(self, channel: KafkaChannel) -> None:
        try:
            self.selector.adopt(channel)
        except Exception as error:
            # This processor owns the channel now, so it must close it.
            self.lifecycle.close(channel, f"cannot be moved: {error!r}")

    def _close_excess_connections(self) -> None:
        now_ns, expiry, lifecycle = self.selector.now_ns, self.expiry, self.lifecycle
        self.selector.charge_none()
        lifecycle.close_due(now_ns)
        if self.inbox.evictions:
            for channel in expiry.least_recently_used(self.inbox.take_evictions()):
                log.info("%s: closed to make room: least recently used", describe(channel))
                lifecycle.close(channel, "closed to make room")
        for channel in expiry.overdue(now_ns):
            lifecycle.authentication.time_out(channel)
        for channel in expiry.aged(now_ns):
            lifecycle.close(channel, "older than max_connection_age_ms")
        for channel in expiry.idle(now_ns):
            self._runtime.counts.idle_closed.add()
            lifecycle.close(channel, "idle for longer than connections.max.idle.ms")

    @property
    def has_work(self) -> bool:
        """Return True if the next turn has work even if the poller finds no event."""
        return bool(
            self.inbox.has_work
            or (self.waiting and self.waiting.has_room)
            or self.migration.requested
            or self.lifecycle.unfinished
            or self.selector.has_work
        )

    def drained(self) -> bool:
        """Return True if the thread may end."""
        if not self._draining:
            return self.migration.retired and not self.connection_count and not self.inbox.calls
        self.selector.stop_reading()
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._drain_deadline_ns:
            return True
        for channel in (*self.selector.channels.values(), *self.selector.closing):
            request = channel.in_flight
            if channel.send is not None or (
                request is not None and not (request.parked and now_ns >= self._grace_end_ns)
            ):
                return False
        return not self.inbox.calls and not self.inbox.adopted and not self.waiting
