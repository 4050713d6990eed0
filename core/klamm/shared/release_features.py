"""The features that brokers of earlier releases of Apache Kafka report (KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from klamm.shared.features import Feature, FeatureLevels

RELEASE_FEATURES: Final[Mapping[str, Mapping[str, tuple[int, int]]]] = {
    # With ZooKeeper there are no features.
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

Of the first three, `kraft.version` and `eligible.leader.replicas.version`, which change nothing for clients, are left
out.
"""


def limited(levels: FeatureLevels, release: str) -> FeatureLevels:
    """Return the features that a broker of this release reports, from these; for a release that is not listed, all of
    them.
    """
    ranges = RELEASE_FEATURES.get(release)
    if ranges is None:
        return levels
    known = [each for each in levels.features if each.name in ranges]
    return FeatureLevels(
        levels.epoch if known else -1,
        tuple(Feature(each.name, *ranges[each.name], min(each.level, ranges[each.name][1])) for each in known),
    )
