"""Small stand-ins that the network tests share."""

from klamm import Interest, TransportLayer
from klamm.context import Address, ConnectionContext, ListenerContext


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
