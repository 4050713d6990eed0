"""Settings of the filter `faults`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from klamm import setting
from klamm_faults.rule import RuleSettings


@dataclass(frozen=True, slots=True)
class FaultsSettings:
    """The rules of a listener's clients from the start on; a test adds its own."""

    rules: dict[str, RuleSettings] = setting({}, doc="Rules, each a table of its own, in this order.")
    seed: int = setting(0, doc="What `probability` draws from: the same requests have the same faults again.")
    chaos: bool = setting(False, doc="Every kind of fault, now and then: for tests that run for long.")

    def problems(self) -> Iterator[tuple[str, str]]:
        """Rules that lack what their kind needs."""
        for name, rule in self.rules.items():
            for message in rule.complaints():
                yield f"rules.{name}", message
