"""Settings of the filter `faults`."""

from __future__ import annotations

from collections.abc import Iterator

from klamm import setting
from klamm.dataclasses import dataclass
from klamm_faults.rule import RuleSettings


@dataclass(frozen=True, slots=True)
class FaultsSettings:
    """The rules that a listener starts with; tests add further ones."""

    rules: dict[str, RuleSettings] = setting({}, doc="Rules, each a table of its own, in this order.")
    seed: int = setting(
        0, doc="Seed of the random numbers for `probability`: equal requests get equal faults in each run."
    )
    chaos: bool = setting(
        False, doc="Adds a rule of every kind, each with a small probability: for tests that run for long."
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Rules that lack a setting that their kind needs."""
        for name, rule in self.rules.items():
            for message in rule.complaints():
                yield f"rules.{name}", message
