"""`TopicAccounts`: counts each topic's bytes towards the limit for all topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from klamm_broker.limits.ledger import UNKNOWN_OWNER, Ledger, text_bytes
from klamm_broker.limits.owners import TOPICS as OWNERS
from klamm_broker.storage.store import Store
from klamm_broker.topics.placement import NewTopic
from klamm_broker.topics.topic import Topic

PARTITION_BYTES: Final = 8192
"""Approximate size of a partition in memory, without its records."""
_CONFIG_BYTES: Final = 256


class _Charge(NamedTuple):
    owner: str
    size_bytes: int


class TopicAccounts:
    """The bytes of each topic. They count for the topic's creator, even if another principal adds partitions or
    configs.

    The caller makes one change at a time.
    """

    def __init__(self, ledger: Ledger | None = None) -> None:
        self._ledger = ledger or Ledger("topics")
        self._charges: dict[str, _Charge] = {}

    def load(self, store: Store, topics: Mapping[str, Topic]) -> None:
        """Count the existing topics. Raises StoreError."""
        owners = OWNERS.forget_all_but(store, set(topics))
        for name, topic in topics.items():
            self._count(name, owners.get(name, UNKNOWN_OWNER), len(topic.partitions), topic.overrides)

    def _count(self, name: str, owner: str, partitions: int, overrides: Mapping[str, str]) -> None:
        charge = self._charges[name] = _Charge(owner, _size(name, partitions, overrides))
        self._ledger.add(*charge)

    def admit(self, name: str, wanted: NewTopic) -> None:
        """Count a new topic. Raises KafkaError(POLICY_VIOLATION) if there is no room for it."""
        size_bytes = _size(name, wanted.partitions, wanted.overrides)
        self._ledger.require(wanted.owner, size_bytes)
        self._charges[name] = _Charge(wanted.owner, size_bytes)

    def forget(self, names: Iterable[str]) -> None:
        """Stop counting topics that were deleted, or could not be created."""
        for name in names:
            owner, size_bytes = self._charges.pop(name)
            self._ledger.add(owner, -size_bytes)

    @contextmanager
    def changing(self, topic: Topic, partitions: int, overrides: Mapping[str, str]) -> Iterator[None]:
        """Count the new partitions and configs of a topic, unless the change fails.

        Raises KafkaError(POLICY_VIOLATION) if the topic would grow and there is no room.
        """
        owner, before = self._charges[topic.name]
        after = _size(topic.name, partitions, overrides)
        if after > before and not self._ledger.reserve(owner, after - before, in_use=True):
            raise self._ledger.refusal()
        try:
            yield
        except BaseException:
            self._ledger.add(owner, min(0, before - after))
            raise
        self._ledger.add(owner, min(0, after - before))
        self._charges[topic.name] = _Charge(owner, after)


def _size(name: str, partitions: int, overrides: Mapping[str, str]) -> int:
    configs = sum(_CONFIG_BYTES + text_bytes(value) for value in overrides.values())
    return PARTITION_BYTES * partitions + text_bytes(name) + configs
