"""Calls to the gates that admitted a connection; one that raises is logged, and the others are still called."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from klamm.api.context import Address
from klamm.api.gates import ConnectionGate

log = logging.getLogger("klamm.network")


def notify_authenticated(listener: str, gates: Sequence[ConnectionGate], address: Address) -> None:
    """The connection became READY."""
    for gate in gates:
        try:
            gate.authenticated(address)
        except Exception:
            log.exception("listener=%s peer=%s: gate %r failed in authenticated", listener, address, gate)


def notify_authentication_failed(listener: str, gates: Sequence[ConnectionGate], address: Address) -> None:
    """The connection failed its handshake or authentication."""
    for gate in gates:
        try:
            gate.authentication_failed(address)
        except Exception:
            log.exception("listener=%s peer=%s: gate %r failed in authentication_failed", listener, address, gate)


def release_gates(listener: str, gates: Sequence[ConnectionGate], address: Address) -> None:
    """The connection is closed."""
    for gate in gates:
        try:
            gate.release(address)
        except Exception:
            log.exception("listener=%s peer=%s: gate %r failed to release", listener, address, gate)
