"""An anomaly, as a check reports it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from klamm.testing.histories.format import Operation


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One fault: its name, a sentence, and the lines of the shortest history that shows it.

    `offsets` names a record of each partition that matters, for who looks into its log.
    """

    name: str
    text: str
    lines: tuple[int, ...]
    offsets: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, name: str, text: str, operations: Iterable[Operation], offsets: Mapping[str, int] | None = None
    ) -> Anomaly:
        """Build an anomaly that the lines of these operations show."""
        lines = sorted({line for operation in operations for line in operation.lines})
        return cls(name, text, tuple(lines), offsets or {})
