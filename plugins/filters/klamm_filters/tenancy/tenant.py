"""`Tenant`: maps the names of one tenant's clients to the broker's names, and back. Any thread may call it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from klamm_filters.tenancy.expressions import prefixed

_ROUNDS: Final = 4
_HALF_BYTES: Final = 8
_KEPT_IDS: Final = 10_000
_NO_ID: Final = bytes(16)
_NAME_CHARACTER: Final = "[A-Za-z0-9._-]"


class ForeignNameError(Exception):
    """Raised if a response contains a name that is not the tenant's. The text is only logged."""


class TopicIds:
    """A keyed permutation of topic ids: a Feistel network of four rounds over BLAKE2b.

    A client that sees an id of another tenant cannot use it: decrypted with the client's own key, the id belongs to no
    topic. No ids are stored, so all servers of a cluster map them in the same way.
    """

    def __init__(self, secret: bytes, prefix: str) -> None:
        self._key = blake2b(prefix.encode(), key=blake2b(secret).digest(), person=b"klamm topic ids").digest()
        self.to_client: Callable[[bytes], bytes] = lru_cache(_KEPT_IDS)(self._to_client)
        self.to_broker: Callable[[bytes], bytes] = lru_cache(_KEPT_IDS)(self._to_broker)

    def _mixed(self, number: int, half: bytes, other: bytes) -> bytes:
        digest = blake2b(half, key=self._key, salt=bytes([number]), digest_size=_HALF_BYTES).digest()
        return (int.from_bytes(digest, "big") ^ int.from_bytes(other, "big")).to_bytes(_HALF_BYTES, "big")

    def _to_client(self, topic_id: bytes) -> bytes:
        if topic_id == _NO_ID:
            return topic_id
        left, right = topic_id[:_HALF_BYTES], topic_id[_HALF_BYTES:]
        for number in range(_ROUNDS):
            left, right = right, self._mixed(number, right, left)
        return left + right

    def _to_broker(self, topic_id: bytes) -> bytes:
        if topic_id == _NO_ID:
            return topic_id
        left, right = topic_id[:_HALF_BYTES], topic_id[_HALF_BYTES:]
        for number in reversed(range(_ROUNDS)):
            left, right = self._mixed(number, left, right), left
        return left + right


class Tenant:
    """The mapping of one tenant's names. Any thread may call it."""

    def __init__(self, prefix: str, secret: bytes) -> None:
        self.prefix = prefix
        self.ids = TopicIds(secret, prefix)
        self._escaped = re.escape(prefix)
        self._in_text = re.compile(f"(?<!{_NAME_CHARACTER}){self._escaped}(?!\\s|$)")

    def add(self, name: str) -> str:
        """Return the broker's form of a name."""
        return self.prefix + name

    def owns(self, name: str) -> bool:
        """Return True if a name at the broker belongs to this tenant."""
        return name.startswith(self.prefix)

    def strip(self, name: str) -> str:
        """Return the tenant's form of a name. Raises ForeignNameError."""
        if not name.startswith(self.prefix):
            raise ForeignNameError(f'"{name}" does not belong to the tenant with the prefix "{self.prefix}"')
        return name[len(self.prefix) :]

    def strip_or_hide(self, name: str) -> str:
        """Return the name like `strip`, but an empty text for a name of another tenant.

        It is for the bytes that consumers exchange: their format does not allow leaving out a name.
        """
        return name[len(self.prefix) :] if name.startswith(self.prefix) else ""

    def text(self, message: str) -> str:
        """Return an error message in which no name has the prefix."""
        return self._in_text.sub("", message)

    def pattern_to_broker(self, pattern: str) -> str:
        """Return the broker's expression that matches the same names of the tenant. Raises the errors of `prefixed`."""
        return prefixed(pattern, self._escaped)

    def pattern_to_client(self, pattern: str) -> str:
        """Return the expression that the client sent; empty if it belongs to another tenant."""
        begin = f"{self._escaped}(?:"
        if pattern.startswith(begin) and pattern.endswith(")"):
            return pattern[len(begin) : -1]
        return ""
