"""`Anomaly`, which a check reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from klamm.testing.histories.format import Operation


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A violation of a guarantee: its name, a sentence, and the lines of the shortest history that shows it.

    `offsets` has the offset of a concerned record for each partition, so that you can look it up in the log.
    """

    name: str
    text: str
    lines: tuple[int, ...]
    offsets: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, name: str, text: str, operations: Iterable[Operation], offsets: Mapping[str, int] | None = None
    ) -> Anomaly:
        """Return an anomaly with the lines of these operations."""
        lines = sorted({line for operation in operations for line in operation.lines})
        return cls(name, text, tuple(lines), offsets or {})
