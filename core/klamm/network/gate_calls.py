"""Calls to the gates that admitted a connection; one that raises is logged, and the others are still called."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from klamm.api.context import Address, ListenerContext
from klamm.api.gates import ConnectionGate

log = logging.getLogger("klamm.network")


def notify_authenticated(listener: ListenerContext, gates: Sequence[ConnectionGate], address: Address) -> None:
    """The connection became READY."""
    for gate in gates:
        try:
            gate.authenticated(address)
        except Exception as error:
            listener.failures.log(log, gate, "authenticated", error)


def notify_identified(listener: ListenerContext, gates: Sequence[ConnectionGate], address: Address) -> None:
    """Notify the gates that the connection's client has proved its identity."""
    for gate in gates:
        try:
            gate.identified(address)
        except Exception as error:
            listener.failures.log(log, gate, "identified", error)


def notify_authentication_failed(listener: ListenerContext, gates: Sequence[ConnectionGate], address: Address) -> None:
    """The connection failed its handshake or authentication."""
    for gate in gates:
        try:
            gate.authentication_failed(address)
        except Exception as error:
            listener.failures.log(log, gate, "authentication_failed", error)


def release_gates(listener: ListenerContext, gates: Sequence[ConnectionGate], address: Address) -> None:
    """The connection is closed."""
    for gate in gates:
        try:
            gate.release(address)
        except Exception as error:
            listener.failures.log(log, gate, "release", error)
