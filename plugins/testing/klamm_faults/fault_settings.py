"""Settings of the filter `faults`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from klamm import setting
from klamm_faults.rule import RuleSettings


@dataclass(frozen=True, slots=True)
class FaultsSettings:
    """The initial rules of a listener. Tests may add further rules."""

    rules: dict[str, RuleSettings] = setting({}, doc="Rules, each in its own table, applied in this order.")
    seed: int = setting(
        0, doc="Seed of the random numbers for `probability`: the same requests get the same faults in each run."
    )
    chaos: bool = setting(False, doc="Add a rule of every kind, each with a small probability: for long-running tests.")

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield problems of rules, e.g. a missing setting that the rule's kind needs."""
        for name, rule in self.rules.items():
            for message in rule.complaints():
                yield f"rules.{name}", message
