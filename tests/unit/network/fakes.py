"""Small stand-ins for the tests of the network layer."""

import logging
from dataclasses import fields

from klamm import ApiSet, Interest, TransportLayer
from klamm.api.context import Address, ConnectionContext, ListenerContext
from klamm.logs.rate_limited import RateLimitedLog
from klamm.metrics.connections import ConnectionCounts, ConnectionFailures
from klamm.network.admission import GateOutcomes
from klamm.network.peer_failures import PeerFailureLog
from klamm.network.poller import HANG_UP
from klamm.network.runtime import Limits, ListenerRuntime
from klamm.network.selector import Selector
from klamm.requests.limits import request_limits
from klamm.requests.listener_parts import RequestParts
from klamm.requests.request_channel import RequestChannel
from klamm.requests.routes import FilterCalls, Routes
from klamm.runtime import Scheduler
from klamm.testing import ManualClock
from klamm_dispatch.schedulers import Fifo

LIMITS = Limits(
    max_incoming=20,
    max_request_bytes=100_000,
    failed_authentication_delay_ms=20,
    max_connection_age_ms=0,
    connections_max_idle_ms=0,
    connection_setup_timeout_ms=0,
    send_buffer_bytes=-1,
    use_send_file=False,
    poller="poll",
)
"""Limits with which no connection ends because it is old or idle."""


def connection_context(name="test"):
    address = Address("127.0.0.1", 9092)
    return ConnectionContext("c-1", ListenerContext(name, address, address), address, Address("127.0.0.1", 50000))


class QuietTransport(TransportLayer):
    """A transport that receives nothing, and accepts everything that is sent."""

    def handshake(self):
        return Interest.NONE

    def read_into(self, buffer):
        return 0

    def write(self, chunks, more=False):
        return sum(map(len, chunks))

    def send_file(self, descriptor, position, count):
        return count

    def close(self):
        pass


class FakePoller:
    """A level-triggered poller. It reports the events that a test has set for each descriptor, if they are watched."""

    def __init__(self):
        self.watched, self.events = {}, {}

    def register(self, descriptor, interest):
        self.watched[descriptor] = interest

    def modify(self, descriptor, interest):
        self.watched[descriptor] = interest

    def unregister(self, descriptor):
        del self.watched[descriptor]

    def poll(self, timeout_s):
        found = []
        for descriptor, mask in self.events.items():
            if descriptor not in self.watched:
                continue
            mask &= self.watched[descriptor] | HANG_UP
            if mask:
                found.append((descriptor, mask))
        return found

    def close(self):
        self.watched.clear()


class FakeWaker:
    """A waker that counts its calls."""

    descriptor = 0

    def __init__(self):
        self.woken = 0

    def wake(self):
        self.woken += 1

    def close(self):
        pass


def request_parts(listener, clock, scheduler, handlers=(), mode="hybrid", filters=(), **parts):
    """Return the parts that requests of a listener need, without observers and slow-request log."""
    limits = parts.get("limits") or request_limits()
    return RequestParts(
        listener=listener,
        routes=Routes(handlers, mode, [FilterCalls.of(one) for one in filters], limits),
        clock=clock,
        observers=parts.get("observers"),
        slow_log=parts.get("slow_log"),
        failures=RateLimitedLog(logging.getLogger("klamm.requests"), scheduler.schedule),
        limits=limits,
    )


def runtime(**overrides):
    """Return the runtime of a listener without APIs. `overrides` replace its fields, and those of its limits."""
    limits = {field.name: overrides.pop(field.name, getattr(LIMITS, field.name)) for field in fields(Limits)}
    clock = overrides.pop("clock", None) or ManualClock()
    scheduler = overrides.pop("scheduler", None) or Scheduler(clock)
    context = overrides.pop("context", None) or connection_context().listener
    made = {
        "transport": None,
        "authenticators": None,
        "gates": (),
        "proxies": None,
        "requests": overrides.pop("requests", None) or request_parts(context, clock, scheduler),
        "request_channel": RequestChannel(Fifo(None, 100)),
        "pool": None,
        "handshakers": None,
        "failures": ConnectionFailures(context.name),
        "failure_log": PeerFailureLog(logging.getLogger("klamm.network"), scheduler.schedule, 10),
        "outcomes": GateOutcomes(),
        "counts": ConnectionCounts(),
        "api_set": ApiSet(None),
        "new_recorder": lambda: None,
    }
    return ListenerRuntime(
        context=context, limits=Limits(**limits), clock=clock, scheduler=scheduler, **(made | overrides)
    )


def make_selector(poller, waker, handshakers=None):
    """Return a selector over fakes. With `handshakers`, handshakes take their steps there."""
    return Selector(poller, waker, runtime(handshakers=handshakers))


def turn(selector):
    """Take a turn of a processor, for channels that are not set up."""
    selector.poll(0)
    if selector.setup:
        selector.setup.next_step()
