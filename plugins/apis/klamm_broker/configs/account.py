"""`ConfigAccount`: counts the configs of groups, brokers and subscriptions towards their common limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from klamm_broker.limits.ledger import UNKNOWN_OWNER, Ledger, text_bytes
from klamm_broker.storage.store import Store
from klamm_broker.topics.topic_rows import TOPIC_RESOURCE

_CONFIG_BYTES: Final = 1024
"""Approximate size of a config without its value."""


class ConfigAccount:
    """The account of all configs except those of topics. Their bytes count towards the limit of all configs, but not
    towards the share of any owner, because only authorized clients can change these configs.

    Callers make one change at a time.
    """

    def __init__(self, ledger: Ledger, store: Store) -> None:
        """Count the configs that are set. Raises StoreError."""
        self._ledger = ledger
        sql = "SELECT resource_name, name, value FROM configs WHERE resource_type != ?"
        for resource_name, name, value in store.read(sql, (TOPIC_RESOURCE,)):
            self._ledger.add(UNKNOWN_OWNER, _size(resource_name, {name: value}))

    @contextmanager
    def changing(self, name: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[None]:
        """Count a change of a resource's configs, unless the `with` block fails.

        Raises KafkaError(POLICY_VIOLATION) if the configs become larger and the limit leaves no room.
        """
        more = _size(name, after) - _size(name, before)
        if more > 0 and not self._ledger.reserve(UNKNOWN_OWNER, more, in_use=bool(before)):
            raise self._ledger.refusal()
        try:
            yield
        except BaseException:
            self._ledger.add(UNKNOWN_OWNER, -max(0, more))
            raise
        self._ledger.add(UNKNOWN_OWNER, min(0, more))


def _size(name: str, values: Mapping[str, str]) -> int:
    return sum(_CONFIG_BYTES + text_bytes(name) + text_bytes(value) for value in values.values())
