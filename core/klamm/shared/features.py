"""The features of a cluster that ApiVersions reports (KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

RELEASE_FEATURES: Final[Mapping[str, Mapping[str, tuple[int, int]]]] = {
    # Brokers with ZooKeeper have no features.
    "2.8": {},
    "3.9": {"metadata.version": (1, 21)},
    "4.0": {"metadata.version": (7, 25), "transaction.version": (0, 2), "group.version": (0, 1)},
    "4.3": {
        "metadata.version": (7, 30),
        "transaction.version": (0, 2),
        "group.version": (0, 1),
        "share.version": (0, 1),
        "kraft.version": (0, 1),
        "eligible.leader.replicas.version": (0, 1),
        "streams.version": (0, 1),
    },
}
"""Maps a release and a feature to the lowest and the highest level, from Kafka's `MetadataVersion` and `Feature`.

The first three releases lack `kraft.version` and `eligible.leader.replicas.version` here, which do not affect clients.
"""


class Feature(NamedTuple):
    """One feature: the levels that the software supports, and the finalized level, 0 if there is none."""

    name: str
    min_version: int
    max_version: int
    level: int = 0


class FeatureLevels(NamedTuple):
    """All features at one time. `epoch` grows with each change of a finalized level; -1 if there are no features."""

    epoch: int = -1
    features: Sequence[Feature] = ()

    def level(self, name: str) -> int:
        """Return the finalized level of a feature; 0 if it is not finalized."""
        return next((feature.level for feature in self.features if feature.name == name), 0)


class Features:
    """The features that ApiVersions reports for a handler set.

    To change one, the handler set replaces `current`, on any thread.
    """

    __slots__ = ("current",)

    def __init__(self, current: FeatureLevels = FeatureLevels()) -> None:  # noqa: B008
        self.current = current


def limited(levels: FeatureLevels, release: str) -> FeatureLevels:
    """Return these features as a broker of this release would report them; unchanged for an unknown release."""
    ranges = RELEASE_FEATURES.get(release)
    if ranges is None:
        return levels
    known = [each for each in levels.features if each.name in ranges]
    return FeatureLevels(
        levels.epoch if known else -1,
        tuple(Feature(each.name, *ranges[each.name], min(each.level, ranges[each.name][1])) for each in known),
    )
