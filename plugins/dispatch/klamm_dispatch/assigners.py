"""The assigner `round_robin`. klamm calls it on the acceptor's thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from klamm import Address
from klamm.dispatch import ProcessorAssigner, ProcessorLoad


class RoundRobin(ProcessorAssigner):
    """The assigner `round_robin`: one processor after the other, as in Kafka's acceptor."""

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self._next = 0

    def assign(self, address: Address, loads: Sequence[ProcessorLoad]) -> int:
        index = self._next % len(loads)
        self._next = index + 1
        return index
