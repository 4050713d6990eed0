"""Small stand-ins that the network tests share."""

from klamm.context import Address, ConnectionContext, ListenerContext


def connection_context(name="test"):
    address = Address("127.0.0.1", 9092)
    return ConnectionContext("c-1", ListenerContext(name, address, address), address, Address("127.0.0.1", 50000))
