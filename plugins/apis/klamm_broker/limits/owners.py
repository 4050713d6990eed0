"""Owners: the creators of groups, transactional ids and other entries, and their storage across restarts.

An owner is a principal, or the address of a client that has not authenticated.
"""

from __future__ import annotations

import sys
from typing import Final

from klamm import ANONYMOUS, RequestContext
from klamm.shared import source_of
from klamm_broker.storage.store import Statement, Store

_PUT: Final = "INSERT OR REPLACE INTO state_owners (kind, name, owner) VALUES (?, ?, ?)"
_DELETE: Final = "DELETE FROM state_owners WHERE kind = ? AND name = ?"
_MAX_CHARS: Final = 128


def owner_of(context: RequestContext) -> str:
    """Return the owner of the state that a request creates."""
    principal = context.principal
    if principal == ANONYMOUS:
        return source_of(context.client_address.host)
    return short_owner(str(principal))


def short_owner(name: str) -> str:
    """Return the name of an owner. A long name is shortened to its beginning and a digest."""
    if len(name) > _MAX_CHARS:
        import hashlib

        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        name = f"{name[:_MAX_CHARS]}…{digest}"
    return sys.intern(name)


class Owners:
    """The stored owners of the entries of one kind. It has no state, so any thread may call it."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def put(self, name: str, owner: str) -> Statement:
        """Return the statement that stores the owner of an entry."""
        return (_PUT, (self._kind, name, owner))

    def delete(self, name: str) -> Statement:
        """Return the statement that deletes the owner of an entry."""
        return (_DELETE, (self._kind, name))

    def load(self, store: Store) -> dict[str, str]:
        """Read all owners, by the names of their entries. Raises StoreError."""
        return dict(store.read("SELECT name, owner FROM state_owners WHERE kind = ?", (self._kind,)))

    def forget_all_but(self, store: Store, names: set[str]) -> dict[str, str]:
        """Return the owners of existing entries, and delete owners of other entries, which a crash can leave behind.
        Raises StoreError.
        """
        owners = self.load(store)
        orphans = owners.keys() - names
        if orphans:
            store.submit([self.delete(name) for name in orphans])
        return {name: owner for name, owner in owners.items() if name not in orphans}


GROUPS: Final = Owners("group")
TRANSACTIONS: Final = Owners("transactional.id")
TOPICS: Final = Owners("topic")
