"""Share sessions: the partitions that a member fetches, and the epoch of its next request.

Follows Kafka's `ShareSessionCache` and `ShareSession`. A session ends with the epoch -1, with its connection, when its
member leaves the group, or when another session begins for the member.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

from klamm import ErrorCode, KafkaError
from klamm_broker.limits.ledger import UNKNOWN_OWNER, session_ledger
from klamm_broker.numbers import INT32_MAX

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1

TopicPartition: TypeAlias = tuple[bytes, int]
"""Topic id and partition index."""


class SessionKey(NamedTuple):
    """One member of one group, on one node."""

    group_id: str
    member_id: str
    node_id: int


class ShareSession:
    """One session. The requests of one connection use it, one after the other."""

    __slots__ = ("connection_id", "counted", "epoch", "is_alive", "key", "new", "owner", "partitions", "rotation")

    def __init__(self, key: SessionKey, connection_id: str, owner: str) -> None:
        self.key = key
        self.owner = owner
        # The number of partitions that the cache has counted.
        self.counted = 0
        self.connection_id = connection_id
        self.epoch = 1
        self.is_alive = True
        self.partitions: dict[TopicPartition, None] = {}
        # Partitions of the latest request that were not in the session before.
        self.new: list[TopicPartition] = []
        self.rotation = 0

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Add the partitions of a request."""
        self.new = [each for each in dict.fromkeys(partitions) if each not in self.partitions]
        self.partitions.update(dict.fromkeys(self.new))

    def in_turn(self) -> list[TopicPartition]:
        """Return the partitions. Each call starts with another one, so that no partition is always last."""
        every = list(self.partitions)
        if not every:
            return every
        start = self.rotation % len(every)
        self.rotation += 1
        return every[start:] + every[:start]


class ShareSessionCache:
    """At most `max_sessions` sessions with at most `max_partitions` in total. One owner has at most nine tenths.

    `ended(key)` is called without a lock after a session has ended. It is not called for a session that ends with its
    connection, because the network thread must not wait. That session is `unreleased` until `released` is called or
    another session begins for the member.
    """

    def __init__(self, max_sessions: int, max_partitions: int, ended: Callable[[SessionKey], object]) -> None:
        self.slots = session_ledger("share sessions", max_sessions)
        self._partitions = session_ledger("partitions of share sessions", max_partitions)
        self._ended = ended
        # Protects the sessions, their epochs and the sessions of each connection.
        self._lock = threading.Lock()
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[str, set[SessionKey]] = {}
        self._unreleased: dict[SessionKey, ShareSession] = {}
        self.evictions = 0
        """Number of sessions that ended because another session began for the member."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """The number of partitions in all sessions."""
        return self._partitions.used

    def begin(
        self,
        key: SessionKey,
        connection_id: str,
        partitions: Iterable[TopicPartition],
        owner: str = UNKNOWN_OWNER,
    ) -> ShareSession:
        """Return a new session. It replaces the member's older session. Raises
        KafkaError(SHARE_SESSION_LIMIT_REACHED).
        """
        with self._lock:
            old = self._drop(key)
            holds = old is not None or self._unreleased.pop(key, None) is not None
            session = ShareSession(key, connection_id, owner)
            session.add(partitions)
            # A session that replaces an older one takes over its slot and its room for partitions.
            has_slot = old is not None or self.slots.fits(owner, 1, in_use=True)
            full = not has_slot or not self._count(session, old.counted if old is not None else 0)
            if not full:
                self.slots.add(owner, 1)
                self._sessions[key] = session
                self._by_connection.setdefault(connection_id, set()).add(key)
        if old is not None:
            self.evictions += 1
        if holds:
            self._ended(key)
        if full:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        return session

    def resume(
        self,
        key: SessionKey,
        epoch: int,
        added: Iterable[TopicPartition] = (),
        forgotten: Iterable[TopicPartition] = (),
    ) -> ShareSession:
        """Return the member's session for its next request. Raises KafkaError.

        SHARE_SESSION_NOT_FOUND, also for a session that ends because it would exceed the limit;
        INVALID_SHARE_SESSION_EPOCH for an epoch other than the next one.
        """
        with self._lock:
            session = self._found(key)
            if epoch != session.epoch:
                raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
            session.epoch = 1 if epoch >= INT32_MAX else epoch + 1
            session.add(added)
            for partition in forgotten:
                session.partitions.pop(partition, None)
            full = not self._count(session)
            if full:
                self._drop(key)
        if full:
            self._ended(key)
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    def final(self, key: SessionKey) -> ShareSession:
        """Return the session that the member ends with this request. Raises KafkaError(SHARE_SESSION_NOT_FOUND)."""
        with self._lock:
            return self._found(key)

    def end(self, key: SessionKey) -> None:
        """End the session with this key, if there is one."""
        with self._lock:
            dropped = self._drop(key)
        if dropped is not None:
            self._ended(key)

    def member_gone(self, group_id: str, member_id: str) -> None:
        """End the sessions of a member, on all nodes."""
        with self._lock:
            keys = [key for key in self._sessions if key[:2] == (group_id, member_id)]
        for key in keys:
            self.end(key)

    def connection_closed(self, connection_id: str) -> list[ShareSession]:
        """End the sessions of a connection and return them. From now on they are `unreleased`."""
        if connection_id not in self._by_connection:
            return []
        with self._lock:
            keys = list(self._by_connection.get(connection_id, ()))
            ended = [session for key in keys if (session := self._drop(key)) is not None]
            self._unreleased.update((session.key, session) for session in ended)
        return ended

    def is_unreleased(self, session: ShareSession) -> bool:
        """Return True if the member's records belong to this ended session and must be released."""
        return self._unreleased.get(session.key) is session

    def released(self, session: ShareSession) -> None:
        """Record that the session's records are released."""
        with self._lock:
            if self.is_unreleased(session):
                del self._unreleased[session.key]

    def _count(self, session: ShareSession, had: int = 0) -> bool:
        """Count the session's partitions. Return False if there is no room for the additional partitions."""
        grown = len(session.partitions) - session.counted
        if grown > had and not self._partitions.fits(session.owner, grown, in_use=True):
            return False
        self._partitions.add(session.owner, grown)
        session.counted += grown
        return True

    def _found(self, key: SessionKey) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    def _drop(self, key: SessionKey) -> ShareSession | None:
        session = self._sessions.pop(key, None)
        if session is not None:
            session.is_alive = False
            self.slots.add(session.owner, -1)
            self._partitions.add(session.owner, -session.counted)
            keys = self._by_connection.get(session.connection_id)
            if keys is not None:
                keys.discard(key)
                if not keys:
                    del self._by_connection[session.connection_id]
        return session
