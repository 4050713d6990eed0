"""A name that shows how much work is done by name."""

from __future__ import annotations


class HashedName(str):
    """A name that counts how often it is hashed."""

    __slots__ = ()
    hashed = 0

    def __hash__(self) -> int:
        HashedName.hashed += 1
        return str.__hash__(self)
