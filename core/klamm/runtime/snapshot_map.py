"""`SnapshotMap`, which one thread changes while others read it without a lock. `ServerServices.listeners` is one."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, MutableMapping, ValuesView
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class SnapshotMap(MutableMapping[K, V]):
    """A mapping whose changes replace the whole content. A reader that iterates sees the content of one moment."""

    def __init__(self) -> None:
        self._now: Mapping[K, V] = {}

    def change(self, put: Mapping[K, V], remove: Mapping[K, V]) -> None:
        """Put and remove items in one step. A key in `remove` stays if its value has changed."""
        kept = {key: value for key, value in self._now.items() if remove.get(key) is not value}
        self._now = {**kept, **put}

    def __getitem__(self, key: K) -> V:
        return self._now[key]

    def __setitem__(self, key: K, value: V) -> None:
        self._now = {**self._now, key: value}

    def __delitem__(self, key: K) -> None:
        kept = dict(self._now)
        del kept[key]
        self._now = kept

    def __iter__(self) -> Iterator[K]:
        return iter(self._now)

    def __len__(self) -> int:
        return len(self._now)

    def keys(self) -> KeysView[K]:
        return self._now.keys()

    def values(self) -> ValuesView[V]:
        return self._now.values()

    def items(self) -> ItemsView[K, V]:
        return self._now.items()
