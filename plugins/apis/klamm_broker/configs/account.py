"""`ConfigAccount`: what the configs of groups, brokers and subscriptions count of the limit for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from klamm_broker.limits.ledger import UNKNOWN_OWNER, Ledger, text_bytes
from klamm_broker.topics.topic_rows import TOPIC_RESOURCE

if TYPE_CHECKING:
    from klamm_broker.storage.store import Store

_CONFIG_BYTES: Final = 1024
"""About what a config takes besides its value."""


class ConfigAccount:
    """All configs but those of topics. Who changes them has a right to, so they count for the total alone.

    The caller makes one change at a time.
    """

    def __init__(self, ledger: Ledger, store: Store) -> None:
        """Count what is set. Raises StoreError."""
        self._ledger = ledger
        sql = "SELECT resource_name, name, value FROM configs WHERE resource_type != ?"
        for resource_name, name, value in store.read(sql, (TOPIC_RESOURCE,)):
            self._ledger.add(UNKNOWN_OWNER, _size(resource_name, {name: value}))

    @contextmanager
    def changing(self, name: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[None]:
        """Count the configs of a resource that change, unless that fails.

        Raises KafkaError(POLICY_VIOLATION) where they would take more and there is no room.
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
