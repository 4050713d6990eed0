"""Calls to the gates of a listener, by the acceptor or a processor.

If a gate raises in `admit`, the connection is refused. If a gate raises in a notification, the exception is logged, and
the other gates are still notified.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence

from klamm.api.context import Address, ListenerContext
from klamm.api.gates import ConnectionGate, Delay, Refuse
from klamm.api.part_failures import unfit

log = logging.getLogger("klamm.network")


class GateOutcomes:
    """Counts of the connections that gates of a listener did not admit at once, by reason.

    `refused` connections were closed at once, `delayed` ones closed after a delay, `paused` ones kept waiting. The
    acceptor counts them, or the processors if the listener is behind a proxy. Metrics read the counts on any thread.
    """

    def __init__(self) -> None:
        # Protects the three counts.
        self._lock = threading.Lock()
        self.refused: Counter[str] = Counter()
        self.delayed: Counter[str] = Counter()
        self.paused: Counter[str] = Counter()

    def count(self, refusal: Refuse | Delay) -> None:
        """Count a connection that is refused or must wait."""
        counts = self.refused
        if isinstance(refusal, Delay):
            counts = self.paused if refusal.pause_acceptor else self.delayed
        with self._lock:
            counts[refusal.reason] += 1


def call_gates(
    listener: ListenerContext, gates: Sequence[ConnectionGate], address: Address, admitted: list[ConnectionGate]
) -> Refuse | Delay | None:
    """Call the gates that are not in `admitted` yet, in order, and add each that admits the connection.

    Return None if all gates admit the connection, else the refusal.
    """
    for gate in gates[len(admitted) :]:
        try:
            answer = gate.admit(address)
            if answer is not None and not isinstance(answer, (Refuse, Delay)):
                raise unfit(answer, "None", "a Refuse", "a Delay")
        except Exception as error:
            # If a gate raises, the connection is refused.
            listener.failures.log(log, gate, "admit", error)
            return Refuse("gate_failed")
        if answer is not None:
            return answer
        admitted.append(gate)
    return None


def describe_refusal(refusal: Refuse | Delay) -> str:
    """Return the detail that observers get in addition to the reason."""
    return refusal.detail if isinstance(refusal, Refuse) else f"closed after {refusal.delay_ms} ms"


def notify_authenticated(listener: ListenerContext, gates: Sequence[ConnectionGate], address: Address) -> None:
    """Notify the gates that the connection has become READY."""
    _notify(listener, gates, "authenticated", lambda gate: gate.authenticated(address))


def notify_identified(listener: ListenerContext, gates: Sequence[ConnectionGate], address: Address) -> None:
    """Notify the gates that the connection's client has proved its identity."""
    _notify(listener, gates, "identified", lambda gate: gate.identified(address))


def notify_authentication_failed(listener: ListenerContext, gates: Sequence[ConnectionGate], address: Address) -> None:
    """Notify the gates that the connection has failed its handshake or authentication."""
    _notify(listener, gates, "authentication_failed", lambda gate: gate.authentication_failed(address))


def release_gates(listener: ListenerContext, gates: Sequence[ConnectionGate], address: Address) -> None:
    """Notify the gates that the connection has closed."""
    _notify(listener, gates, "release", lambda gate: gate.release(address))


def _notify(
    listener: ListenerContext, gates: Sequence[ConnectionGate], method: str, call: Callable[[ConnectionGate], None]
) -> None:
    for gate in gates:
        try:
            call(gate)
        except Exception as error:
            listener.failures.log(log, gate, method, error)
