"""The base of all kinds of groups: id, lock, committed offsets, and the methods that offset and admin requests call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import ClassVar, Final, NamedTuple, TypeAlias

from klamm import clipped
from klamm.runtime import Timer
from klamm_broker.groups.expiration import ExpirationTimer
from klamm_broker.groups.lock import GroupLock
from klamm_broker.limits.ledger import UNKNOWN_OWNER, Ledger, text_bytes
from klamm_broker.limits.tables import GROUPS, MEMBERS, OFFSETS, StateLimits

CommittedPartitions: TypeAlias = Iterable[tuple[bytes, int]]
"""Topic ids and indexes of partitions."""


class CommittedOffset(NamedTuple):
    """A committed position.

    `leader_epoch` is -1 when unknown. `expire_timestamp_ms` is set only by clients that still send a retention time
    (OffsetCommit v2 to v4). The position counts towards the share of `owner`, the principal that has committed it.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None = None
    owner: str = UNKNOWN_OWNER


NOT_RESERVED: Final = (UNKNOWN_OWNER, 0)
GROUP_BYTES: Final = 4096
"""Approximate size of a group without members and offsets."""
OFFSET_BYTES: Final = 512
"""Approximate size of an offset, in memory and on disk, with metadata of up to `FREE_METADATA_BYTES`."""
FREE_METADATA_BYTES: Final = 128


class GroupLedgers(NamedTuple):
    """The ledgers that count the bytes of groups, of their members and of their offsets."""

    groups: Ledger = Ledger("groups")
    members: Ledger = Ledger("group members")
    offsets: Ledger = Ledger("offsets")

    @classmethod
    def of(cls, limits: StateLimits) -> GroupLedgers:
        """Return the ledgers of a broker."""
        return cls(limits[GROUPS], limits[MEMBERS], limits[OFFSETS])


UNCOUNTED: Final = GroupLedgers()
"""Ledgers without a limit, for groups that are not yet in a registry."""


class OffsetBook:
    """The offsets of one group id, for any kind of group.

    `offsets`         committed positions by topic and partition.
    `pending`         offsets that open transactions will commit, by producer id, then by topic and partition.
    `pending_writes`  the number of commits that the store has not confirmed yet.
    `latest_pending_ms`  the latest timestamp of a commit within a transaction.
    `ledgers`, `owner` the ledgers that count the group, and the group's creator. Offsets count for the principal that
    has committed them.
    """

    __slots__ = (
        "_id_bytes",
        "_unstable",
        "latest_pending_ms",
        "ledgers",
        "offsets",
        "owner",
        "pending",
        "pending_writes",
    )

    def __init__(self, group_id: str = "") -> None:
        self._id_bytes = text_bytes(group_id)
        self.ledgers = UNCOUNTED
        self.owner = UNKNOWN_OWNER
        self.offsets: dict[str, dict[int, CommittedOffset]] = {}
        self.pending: dict[int, dict[tuple[str, int], CommittedOffset]] = {}
        # Number of producers that have each partition in `pending`.
        self._unstable: Counter[tuple[str, int]] = Counter()
        self.pending_writes = 0
        self.latest_pending_ms = -1

    def commit_timestamp_ms(self, now_ms: int) -> int:
        """Return the timestamp for a commit that is made now.

        It is later than the timestamps of all earlier commits within transactions, so that this commit stays when such
        a transaction ends.
        """
        return max(now_ms, self.latest_pending_ms + 1)

    def pending_timestamp_ms(self, now_ms: int, keys: Iterable[tuple[str, int]]) -> int:
        """Return the timestamp for a commit within a transaction. It is not older than the offsets of these
        partitions.
        """
        timestamp_ms = self.commit_timestamp_ms(now_ms)
        for topic, partition in keys:
            current = self.offsets.get(topic, {}).get(partition)
            if current is not None:
                timestamp_ms = max(timestamp_ms, current.commit_timestamp_ms)
        self.latest_pending_ms = timestamp_ms
        return timestamp_ms

    def is_unstable(self, topic: str, partition: int) -> bool:
        """Return True if an open transaction would commit an offset of this partition (KIP-447)."""
        return (topic, partition) in self._unstable

    # Counting

    @property
    def group_bytes(self) -> int:
        """Return the bytes for which the group counts, without members and offsets."""
        return GROUP_BYTES + self._id_bytes

    def bytes_of(self, topic: str, committed: CommittedOffset) -> int:
        """Return the bytes for which one offset counts."""
        more = text_bytes(committed.metadata) - FREE_METADATA_BYTES
        return OFFSET_BYTES + self._id_bytes + len(topic) + max(0, more)

    def offsets_bytes(self) -> Counter[str]:
        """Return the bytes for which all offsets count, including pending ones, by owner."""
        stored = ((topic, each) for topic, by_partition in self.offsets.items() for each in by_partition.values())
        pending = ((topic, each) for offsets in self.pending.values() for (topic, _), each in offsets.items())
        counted: Counter[str] = Counter()
        for topic, each in (*stored, *pending):
            counted[each.owner] += self.bytes_of(topic, each)
        return counted

    def open_account(self, ledgers: GroupLedgers, owner: str) -> None:
        """Count the offsets in these ledgers."""
        self.ledgers, self.owner = ledgers, owner
        self._count(self.offsets_bytes())

    def reserve(
        self, owner: str, commits: Sequence[tuple[str, int, CommittedOffset]], producer_id: int | None = None
    ) -> tuple[list[int], int]:
        """Reserve room for commits that are being written; return the indexes of those without room, and the reserved
        bytes.

        A partition with an offset always has room if the metadata is small or does not grow. Within a transaction, this
        holds only if no other producer's transaction has an offset of the partition pending.
        """
        free = 0
        grown: list[int] = []
        new: list[int] = []
        sizes = [self.bytes_of(topic, committed) for topic, _, committed in commits]
        for index, (topic, partition, _) in enumerate(commits):
            known = self.offsets.get(topic, {}).get(partition)
            if known is None or (producer_id is not None and self._is_of_another(producer_id, (topic, partition))):
                new.append(index)
            elif sizes[index] > max(self.bytes_of(topic, known), OFFSET_BYTES + self._id_bytes + len(topic)):
                grown.append(index)
            else:
                free += sizes[index]
        ledger = self.ledgers.offsets
        ledger.add(owner, free)
        refused: list[int] = []
        for indexes, in_use in ((new, False), (grown, True)):
            admitted = ledger.reserve_each(owner, [sizes[index] for index in indexes], in_use=in_use)
            refused += (index for index, has_room in zip(indexes, admitted, strict=True) if not has_room)
            free += sum(sizes[index] for index, has_room in zip(indexes, admitted, strict=True) if has_room)
        return refused, free

    def _is_of_another(self, producer_id: int, key: tuple[str, int]) -> bool:
        return key in self._unstable and key not in self.pending.get(producer_id, {})

    def release(self, owner: str, reserved: int) -> None:
        """Release bytes that `reserve` has reserved, because the offsets could not be written."""
        self.ledgers.offsets.add(owner, -reserved)

    def _count(self, more: Counter[str]) -> None:
        for owner, offsets_bytes in more.items():
            if offsets_bytes:
                self.ledgers.offsets.add(owner, offsets_bytes)

    # Offsets

    def put(
        self, commits: Iterable[tuple[str, int, CommittedOffset]], reserved: tuple[str, int] = NOT_RESERVED
    ) -> None:
        """Store offsets that are durable. They count for their owner from now on, in place of the bytes that `reserve`
        has reserved.

        Both happen in one step, so that other commits cannot use the room meanwhile.
        """
        more = Counter({reserved[0]: -reserved[1]})
        for topic, partition, committed in commits:
            by_partition = self.offsets.setdefault(topic, {})
            known = by_partition.get(partition)
            more[committed.owner] += self.bytes_of(topic, committed)
            if known is not None:
                more[known.owner] -= self.bytes_of(topic, known)
            by_partition[partition] = committed
        self._count(more)

    def remove(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Forget offsets, if they exist."""
        more: Counter[str] = Counter()
        for topic, index in partitions:
            by_partition = self.offsets.get(topic, {})
            known = by_partition.pop(index, None)
            if known is not None:
                more[known.owner] -= self.bytes_of(topic, known)
            if not by_partition:
                self.offsets.pop(topic, None)
        self._count(more)

    def add_pending(
        self,
        producer_id: int,
        offsets: Mapping[tuple[str, int], CommittedOffset],
        reserved: tuple[str, int] = NOT_RESERVED,
    ) -> None:
        """Add the offsets that a transaction would commit; `reserved` as in `put`."""
        known = self.pending.setdefault(producer_id, {})
        more = Counter({reserved[0]: -reserved[1]})
        for key, each in offsets.items():
            more[each.owner] += self.bytes_of(key[0], each)
            if key in known:
                more[known[key].owner] -= self.bytes_of(key[0], known[key])
        self._count(more)
        self._unstable.update(key for key in offsets if key not in known)
        known.update(offsets)

    def take_pending(self, producer_id: int) -> Mapping[tuple[str, int], CommittedOffset]:
        """Return and forget the pending offsets of a transaction that ends."""
        ended = self.pending.pop(producer_id, {})
        more: Counter[str] = Counter()
        for key, each in ended.items():
            self._forget(key)
            more[each.owner] -= self.bytes_of(key[0], each)
        self._count(more)
        return ended

    def pending_of(self, topics: Set[str]) -> list[tuple[str, int]]:
        """Return the partitions of these topics for which open transactions have pending offsets."""
        return [key for key in self._unstable if key[0] in topics]

    def forget_pending(self, keys: Iterable[tuple[str, int]]) -> None:
        """Forget the offsets of these partitions that are pending in open transactions, because the offsets are
        deleted.
        """
        for key in keys:
            if key not in self._unstable:
                continue
            for producer_id in [each for each, pending in self.pending.items() if key in pending]:
                pending = self.pending[producer_id]
                forgotten = pending.pop(key)
                self._count(Counter({forgotten.owner: -self.bytes_of(key[0], forgotten)}))
                self._forget(key)
                if not pending:
                    del self.pending[producer_id]

    def _forget(self, key: tuple[str, int]) -> None:
        self._unstable[key] -= 1
        if not self._unstable[key]:
            del self._unstable[key]

    def clear(self) -> None:
        """Forget all offsets, because the group is deleted."""
        self._count(Counter({owner: -amount for owner, amount in self.offsets_bytes().items()}))
        self.offsets.clear()
        self.pending.clear()
        self._unstable.clear()


class Group(GroupLock, ABC):
    """One group, of one kind (`group_type`).

    If a group changes its kind, a new object with the same lock and the same offsets takes its place. The old object is
    dead from then on. So a caller that has waited for the lock must check `is_dead` first.

    Threading: a thread may use only `group_id` and `log_name` unless it holds the group (`with group:`). Answers that
    are given while a thread holds the group are delivered after the release, so no reply runs under the lock.
    """

    group_type: ClassVar[str]

    def __init__(self, group_id: str, replaced: Group | None = None) -> None:
        super().__init__(clipped(group_id), replaced)
        self.group_id = group_id
        self.book: OffsetBook = replaced.book if replaced is not None else OffsetBook(group_id)
        # Bytes of the members of each owner; None once the members no longer count.
        self._charges: Counter[str] | None = Counter()

    def open_accounts(self, ledgers: GroupLedgers, owner: str) -> None:
        """Count the group's members and offsets in these ledgers, where the group itself is already counted."""
        self.book.open_account(ledgers, owner)
        for each, charge in (self._charges or {}).items():
            ledgers.members.add(each, charge)

    def count_members(self, owner: str, more_bytes: int) -> None:
        """Add `more_bytes`, which may be negative, to the bytes that an owner's members use. A dead group counts
        nothing.
        """
        if self._charges is not None and more_bytes:
            self._charges[owner] += more_bytes
            self.book.ledgers.members.add(owner, more_bytes)

    @contextmanager
    def room_for(self, owner: str, more_bytes: int, *, in_use: bool) -> Iterator[bool]:
        """Reserve room while an owner's members grow. Yield True if there is room. `in_use` is True for a member that
        is already in the group.
        """
        ledger, reserved = self.book.ledgers.members, max(0, more_bytes)
        if reserved and not ledger.reserve(owner, reserved, in_use=in_use):
            yield False
            return
        try:
            yield True
        finally:
            # By now `count_members` has counted these bytes.
            ledger.add(owner, -reserved)

    def close_members_account(self) -> None:
        """Stop counting the members of a dead group."""
        for owner, charge in (self._charges or {}).items():
            self.book.ledgers.members.add(owner, -charge)
        self._charges = None

    @property
    def offsets(self) -> dict[str, dict[int, CommittedOffset]]:
        """Committed positions by topic and partition."""
        return self.book.offsets

    @property
    @abstractmethod
    def state_name(self) -> str:
        """Return the state as clients see it."""

    @property
    @abstractmethod
    def protocol_type(self) -> str | None:
        """Return the protocol type of the group's members; None if it never had members."""

    @property
    @abstractmethod
    def is_dead(self) -> bool:
        """Return True if the group was deleted or replaced."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Return True if the group is not dead and has no members."""

    @property
    @abstractmethod
    def is_expected(self) -> bool:
        """Return True if a member may join soon, so that an empty group must not be removed."""

    @abstractmethod
    def forget_expected(self) -> None:
        """Forget members that may join, because the group is being deleted."""

    def deletion_written(self) -> None:
        """Called after the durable deletion of the group. Does nothing here; `ShareGroup` overrides it."""

    @abstractmethod
    def die(self) -> None:
        """Mark the group as deleted or replaced."""

    @abstractmethod
    def validate_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, partitions: CommittedPartitions
    ) -> None:
        """Raise KafkaError unless this member may commit offsets in this generation (or member epoch).

        A generation of -1 comes from an administrator, or from a consumer without group management. `partitions` are
        read only if an earlier epoch may be valid for some of them.
        """

    def validate_transactional_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, partitions: CommittedPartitions
    ) -> None:
        """Check a commit within a transaction, like `validate_commit` (KIP-447)."""
        self.validate_commit(member_id, group_instance_id, generation_id, partitions)

    @abstractmethod
    def validate_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raise KafkaError unless this member may fetch offsets. A request without member id and epoch always may."""

    @abstractmethod
    def validate_offset_delete(self) -> None:
        """Raise KafkaError if the group has members that forbid the deletion of offsets."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Return True if a member may read the topic."""

    @abstractmethod
    def retained_since_ms(self, committed: CommittedOffset) -> int | None:
        """Return the wall-clock time at which the retention of an offset started, or None if it has not (KIP-211).

        Callers ask only about topics without subscribers.
        """


def cancel_timer(timer: Timer | ExpirationTimer | None) -> None:
    """Cancel a timer, if it is set."""
    if timer is not None:
        timer.cancel()
