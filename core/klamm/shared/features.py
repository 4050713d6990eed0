"""The features of a cluster that ApiVersions reports (KIP-584)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Feature(NamedTuple):
    """One feature: the levels that the software supports, and the finalized level; 0 means not finalized."""

    name: str
    min_version: int
    max_version: int
    level: int = 0


class FeatureLevels(NamedTuple):
    """All features at one time. `epoch` rises with each change of a finalized level; -1 means that there are none."""

    epoch: int = -1
    features: Sequence[Feature] = ()

    def level(self, name: str) -> int:
        """Return the finalized level of a feature; 0 if it is not finalized."""
        return next((feature.level for feature in self.features if feature.name == name), 0)


class Features:
    """Features that ApiVersions reports for a handler set. The handler set replaces `current` as a whole, from any
    thread.
    """

    __slots__ = ("current",)

    def __init__(self, current: FeatureLevels = FeatureLevels()) -> None:  # noqa: B008
        self.current = current
