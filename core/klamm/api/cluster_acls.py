"""`ClusterAcls`: the ACLs of the cluster behind a handler set, for authorizers of its listeners."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from klamm.api.acl import AclBinding
    from klamm.shared.tables import SharedState

Bindings: TypeAlias = "Collection[AclBinding] | None"


class ClusterAcls:
    """The handler set fetches the ACLs and calls `replace`; authorizers `watch`. Any thread may call either.

    `bindings` is None while the rules of the cluster are not known. Authorizers then deny everything.
    """

    def __init__(self) -> None:
        # Protects the watchers, and keeps their notifications in order.
        self._lock = threading.Lock()
        self._watchers: list[Callable[[Bindings], object]] = []
        self.bindings: Bindings = None

    @staticmethod
    def of(shared: SharedState, api_set: str) -> ClusterAcls:
        """Return the ACLs of the handler set that listeners name `api_set`."""
        return shared.once(f"cluster-acls:{api_set}", ClusterAcls)

    @property
    def is_watched(self) -> bool:
        """Return True if an authorizer uses the ACLs."""
        return bool(self._watchers)

    def watch(self, watcher: Callable[[Bindings], object]) -> None:
        """Call `watcher(bindings)` now, and after each change on the thread of the change."""
        with self._lock:
            self._watchers.append(watcher)
            watcher(self.bindings)

    def replace(self, bindings: Bindings) -> None:
        """Replace all ACLs by those of the cluster; None if they are not known."""
        with self._lock:
            self.bindings = bindings
            for watcher in self._watchers:
                watcher(bindings)
