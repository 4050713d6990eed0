"""The features of the cluster and their finalized levels (KIP-584, KIP-1022). Follows Kafka's `FeatureControlManager`.

A feature whose level was never set has klamm's default: the level of a new Kafka cluster of the same release.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from klamm import ErrorCode, KafkaError, clipped
from klamm.shared import Feature, FeatureLevels, Features
from klamm_broker.storage.store import Store

METADATA_VERSION: Final = "metadata.version"
TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
"""1: the consumer protocol of KIP-848 is served."""

SHARE_VERSION: Final = "share.version"
"""1: share groups (KIP-932) are served; 2: they have dead-letter topics (KIP-1191)."""

DEAD_LETTERS_FROM: Final = 2

KRAFT_VERSION: Final = "kraft.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"
STREAMS_VERSION: Final = "streams.version"
"""1: streams groups (KIP-1071) are served."""

SUPPORTED: Final = (
    Feature(METADATA_VERSION, 7, 33, 33),
    Feature(TRANSACTION_VERSION, 0, 2, 2),
    Feature(GROUP_VERSION, 0, 1, 1),
    Feature(SHARE_VERSION, 0, 2, 2),
    Feature(KRAFT_VERSION, 0, 1, 0),
    Feature(ELIGIBLE_LEADER_REPLICAS_VERSION, 0, 1, 1),
    Feature(STREAMS_VERSION, 0, 1, 1),
)
"""Features with their default levels. The level of `metadata.version` is that of the Kafka release that klamm follows,
and cannot change.

`kraft.version` and `eligible.leader.replicas.version` have no effect. They are here because
`kafka-features upgrade --release-version` names both, and an update changes all named features or none. The default
level of `kraft.version` is 0, as in a Kafka cluster whose settings name the controllers.
"""

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
_LEVEL: Final = "feature/"
_EPOCH: Final = "features-epoch"


class FeatureUpdate(NamedTuple):
    """A requested level, and the kind of change: UPGRADE, SAFE_DOWNGRADE or UNSAFE_DOWNGRADE."""

    level: int
    kind: int = UPGRADE


class FeatureRegistry:
    """The finalized levels, durable in the store. ApiVersions reports `published`.

    Any thread may call it. Changes are made one at a time, and wait for the store.
    """

    def __init__(self, store: Store, supported: Sequence[Feature] = SUPPORTED) -> None:
        self._store = store
        self._supported = {feature.name: feature for feature in supported}
        # Held from the check of a change until it is published.
        self._lock = threading.Lock()
        self.published = Features(FeatureLevels(0, tuple(supported)))

    def load(self) -> None:
        """Load the levels. Each is moved into the range that this klamm supports. Raises StoreError."""
        rows = self._store.read("SELECT key, value FROM cluster WHERE key LIKE ? OR key = ?", (_LEVEL + "%", _EPOCH))
        values = {key: int(value) for key, value in rows}
        levels = {
            name: min(max(values[_LEVEL + name], feature.min_version), feature.max_version)
            for name, feature in self._supported.items()
            if _LEVEL + name in values
        }
        self._publish(values.get(_EPOCH, 0), levels)

    def level(self, name: str) -> int:
        """Return the finalized level of a feature; 0 if it is not finalized."""
        return self.published.current.level(name)

    def update(self, updates: Mapping[str, FeatureUpdate], *, validate_only: bool = False) -> None:
        """Set all levels or none, durably. Raises KafkaError(INVALID_UPDATE_VERSION), StoreError."""
        with self._lock:
            for name, update in updates.items():
                self._check(name, update)
            if validate_only or not updates:
                return
            levels = {name: update.level for name, update in updates.items()}
            epoch = self.published.current.epoch + 1
            put = "INSERT OR REPLACE INTO cluster (key, value) VALUES (?, ?)"
            self._store.write_and_wait(
                [
                    *((put, (_LEVEL + name, str(level))) for name, level in levels.items()),
                    (put, (_EPOCH, str(epoch))),
                ]
            )
            self._publish(epoch, levels)

    def _publish(self, epoch: int, changed: Mapping[str, int]) -> None:
        features = self.published.current.features
        self.published.current = FeatureLevels(
            epoch, tuple(each._replace(level=changed.get(each.name, each.level)) for each in features)
        )

    def _check(self, name: str, update: FeatureUpdate) -> None:
        if update.kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
            raise _invalid(name, update, "The controller does not support the given upgrade type.")
        if update.level < 0:
            raise _invalid(name, update, "A feature version cannot be less than 0.")
        feature = self._supported.get(name)
        if feature is None:
            raise _invalid(name, update, "This feature is not supported.")
        if not feature.min_version <= update.level <= feature.max_version:
            raise _invalid(name, update, f"Versions {feature.min_version}-{feature.max_version} are supported.")
        current = self.level(name)
        if update.level < current and update.kind == UPGRADE:
            raise _invalid(
                name,
                update,
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe"
                " downgrade.",
            )
        if update.level > current and update.kind != UPGRADE:
            raise _invalid(name, update, "Can't downgrade to a newer version.")
        if name in (METADATA_VERSION, KRAFT_VERSION) and update.level < current:
            raise _invalid(name, update, "Refusing to perform the requested downgrade.")


def _invalid(name: str, update: FeatureUpdate, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {update.level} for feature {clipped(name)}. {reason}",
    )
