"""Asking the gates of a listener, by the acceptor or, behind a proxy, by a processor."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from klamm.context import Address
from klamm.contracts import ConnectionGate, Delay, Refuse

log = logging.getLogger("klamm.network")


def ask_gates(
    listener: str, gates: Sequence[ConnectionGate], address: Address, admitted: list[ConnectionGate]
) -> Refuse | Delay | None:
    """Ask, in order, the gates that are not in `admitted` yet, which grows by those that admit; None if all do."""
    for gate in gates[len(admitted) :]:
        try:
            answer = gate.admit(address)
        except Exception:
            # A gate that fails protects nothing: it must not be a way in.
            log.exception("listener=%s peer=%s: gate %r failed", listener, address, gate)
            return Refuse("gate_failed")
        if answer is not None:
            return answer
        admitted.append(gate)
    return None


def describe_refusal(refusal: Refuse | Delay) -> str:
    """What observers are told beside the reason."""
    return refusal.detail if isinstance(refusal, Refuse) else f"closed after {refusal.delay_ms} ms"
