"""Calls to the gates of a listener, by the acceptor or, behind a proxy, by a processor."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Sequence

from klamm.api.context import Address, ListenerContext
from klamm.api.gates import ConnectionGate, Delay, Refuse
from klamm.api.part_failures import unfit

log = logging.getLogger("klamm.network")


class GateOutcomes:
    """Counts of gates' decisions on connections of a listener, by reason; its acceptor counts, or behind a proxy its
    processors. `refused`: closed at once; `delayed`: closed after a delay; `paused`: kept waiting.
    """

    def __init__(self) -> None:
        # Protects the counts of refusals and failures.
        self._lock = threading.Lock()
        self.refused: Counter[str] = Counter()
        self.delayed: Counter[str] = Counter()
        self.paused: Counter[str] = Counter()

    def count(self, refusal: Refuse | Delay) -> None:
        """Count a connection that was refused, or must wait."""
        counts = self.refused
        if isinstance(refusal, Delay):
            counts = self.paused if refusal.pause_acceptor else self.delayed
        with self._lock:
            counts[refusal.reason] += 1


def call_gates(
    listener: ListenerContext, gates: Sequence[ConnectionGate], address: Address, admitted: list[ConnectionGate]
) -> Refuse | Delay | None:
    """Call, in order, the gates that are not in `admitted` yet, and add those that admit. Return None if all admit,
    else the refusal.
    """
    for gate in gates[len(admitted) :]:
        try:
            answer = gate.admit(address)
            if answer is not None and not isinstance(answer, (Refuse, Delay)):
                raise unfit(answer, "None", "a Refuse", "a Delay")
        except Exception as error:
            # A gate that raises refuses: it fails closed.
            listener.failures.log(log, gate, "admit", error)
            return Refuse("gate_failed")
        if answer is not None:
            return answer
        admitted.append(gate)
    return None


def describe_refusal(refusal: Refuse | Delay) -> str:
    """Return the detail that observers get in addition to the reason."""
    return refusal.detail if isinstance(refusal, Refuse) else f"closed after {refusal.delay_ms} ms"
