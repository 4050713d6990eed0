"""Small stand-ins that the network tests share."""

from klamm import Interest, TransportLayer
from klamm.api.context import Address, ConnectionContext, ListenerContext
from klamm.metrics.connection_failures import ConnectionFailures
from klamm.network.poller import HANG_UP
from klamm.network.selector import Selector
from klamm.testing import ManualClock


def connection_context(name="test"):
    address = Address("127.0.0.1", 9092)
    return ConnectionContext("c-1", ListenerContext(name, address, address), address, Address("127.0.0.1", 50000))


class QuietTransport(TransportLayer):
    """Nothing comes, and whatever goes is taken."""

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
    """Says of each descriptor what the test has put there, as far as it is watched; level-triggered."""

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
    """Counts how often it was woken."""

    descriptor = 0

    def __init__(self):
        self.woken = 0

    def wake(self):
        self.woken += 1


def make_selector(poller, waker, handshakes=None):
    """One over fakes, with an infinite patience."""
    return Selector(
        poller,
        waker,
        ManualClock(),
        idle_timeout_ns=10**12,
        pool=None,
        use_send_file=False,
        failures=ConnectionFailures("l"),
        setup_timeout_ns=10**12,
        handshakes=handshakes,
    )


def turn(selector):
    """One of a processor, as far as newcomers go."""
    selector.poll(0)
    if selector.has_newcomers:
        selector.next_newcomer()
