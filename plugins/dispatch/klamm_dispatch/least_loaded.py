"""The assigner `least_loaded`: assigns new connections by load, and moves connections away from hot processors.

klamm calls `assign` on the acceptor's thread, and `rebalance` on the scheduler's thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from klamm import Address, setting
from klamm.dispatch import ConnectionLoad, Move, ProcessorAssigner, ProcessorLoad

_LIGHT: Final = 0.02


@dataclass(frozen=True, slots=True)
class LeastLoadedSettings:
    """The table `[listeners.NAME.least_loaded]`."""

    rebalance_interval_ms: int = setting(
        1000,
        doc="Interval between measurements of the loads, after which connections may move; 0 means never.",
        minimum=0,
    )
    skew: float = setting(
        0.25,
        doc="Difference in busy time between two processors, from 0 to 1, above which connections move.",
        minimum=0.01,
        maximum=1.0,
    )
    hot: float = setting(
        0.5,
        doc="A processor that is busy for a smaller part of its time (0 to 1) keeps its connections.",
        minimum=0.0,
        maximum=1.0,
    )
    max_moves: int = setting(32, doc="Maximum number of connections that move in one interval.", minimum=1)
    goal: str = setting(
        "latency",
        doc="The goal of migration: `latency` moves light connections away from hot processors, `throughput` spreads "
        "heavy connections evenly.",
        choices=("latency", "throughput"),
    )


class LeastLoaded(ProcessorAssigner):
    """The assigner `least_loaded`. A new connection goes to the processor with the smallest load.

    The load is a sum of three shares: of the listener's connections, of its bytes, and of its busy time.

    Connections move if the busiest processor is busier than `hot`, and busier than the idlest one by `skew`. With the
    goal `latency`, light connections move to the idlest processor, where no heavy request delays them, and heavy
    connections are balanced among the others. With the goal `throughput`, heavy connections are balanced among all
    processors, and light connections only leave a processor that one heavy connection keeps busy. Processors are then
    less busy, but a light request may wait for a heavy one on each of them.
    """

    settings: LeastLoadedSettings

    def __init__(self, settings: LeastLoadedSettings | None = None) -> None:
        super().__init__(settings or LeastLoadedSettings())
        self._next = 0

    @property
    def rebalance_interval_ms(self) -> int:
        return self.settings.rebalance_interval_ms

    def assign(self, address: Address, loads: Sequence[ProcessorLoad]) -> int:
        columns: list[list[float]] = [
            [float(load.connections) for load in loads],
            [load.bytes_per_s for load in loads],
            [load.busy for load in loads],
        ]
        totals = [sum(column) or 1.0 for column in columns]
        scores = [
            sum(column[i] / total for column, total in zip(columns, totals, strict=True)) for i in range(len(loads))
        ]
        # Processors with equal loads take turns.
        self._next += 1
        count = len(loads)
        return min(range(count), key=lambda index: (round(scores[index], 6), (index - self._next) % count))

    def rebalance(
        self, loads: Sequence[ProcessorLoad], connections: Sequence[Sequence[ConnectionLoad]]
    ) -> Sequence[Move]:
        hottest = max(range(len(loads)), key=lambda index: loads[index].busy)
        idlest = min(range(len(loads)), key=lambda index: loads[index].busy)
        gap = loads[hottest].busy - loads[idlest].busy
        if loads[hottest].busy < self.settings.hot or gap < self.settings.skew:
            return ()
        own = connections[hottest]
        if self.settings.goal == "throughput":
            return self._balance(own, gap, idlest) or self._move_light(own, gap, idlest, only_for_one=True)
        moves = self._move_light(own, gap, idlest)
        others = [index for index in range(len(loads)) if index != idlest]
        target = min(others, key=lambda index: loads[index].busy)
        if not moves and target != hottest:
            moves = self._balance(own, loads[hottest].busy - loads[target].busy, target)
        return moves

    def _balance(self, connections: Sequence[ConnectionLoad], gap: float, target: int) -> Sequence[Move]:
        """Move one heavy connection: the one whose move makes the two processors most equal."""
        heavy = [one for one in connections if one.busy > _LIGHT]
        best = min(heavy, key=lambda one: abs(gap - 2 * one.busy), default=None)
        if best is None or abs(gap - 2 * best.busy) > gap - self.settings.skew / 2:
            return ()
        return (Move(best.connection_id, target),)

    def _move_light(
        self, connections: Sequence[ConnectionLoad], gap: float, target: int, *, only_for_one: bool = False
    ) -> Sequence[Move]:
        """Move light connections away from heavy ones, as long as the target stays less busy."""
        light = [one for one in connections if one.busy <= _LIGHT]
        heavies = len(connections) - len(light)
        if not heavies or (only_for_one and heavies > 1):
            return ()
        moves = []
        left = gap / 2
        for one in light[: self.settings.max_moves]:
            left -= one.busy
            if left < 0:
                break
            moves.append(Move(one.connection_id, target))
        return moves
