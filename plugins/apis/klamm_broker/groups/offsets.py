"""Committed offsets: commit, fetch, delete, expire.

Follows Kafka's `OffsetMetadataManager`. The memory has only offsets that the store has confirmed, so clients can fetch
only durable offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Final, NamedTuple, TypeAlias

from klamm import ErrorCode, KafkaError
from klamm.runtime import Clock
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.groups import persistence
from klamm_broker.groups.classic_group import ClassicGroup
from klamm_broker.groups.consumer.group import ConsumerGroup
from klamm_broker.groups.group import CommittedOffset, Group
from klamm_broker.groups.group_registry import GroupRegistry
from klamm_broker.groups.rebalance import Rebalancer
from klamm_broker.groups.state import PREPARING_REBALANCE, STABLE
from klamm_broker.groups.streams.group import StreamsGroup
from klamm_broker.numbers import INT64_MAX
from klamm_broker.storage.store import Store, StoreError

log = logging.getLogger("klamm.broker.groups")

_MS_PER_MINUTE = 60_000

TopicPartitions: TypeAlias = Mapping[str, Sequence[int]]
"""Partition indexes by topic name."""

FetchedOffsets: TypeAlias = Mapping[str, Mapping[int, CommittedOffset | None]]
"""Committed offsets by topic name and partition index; None if nothing is committed, or `UNSTABLE`."""

UNSTABLE: Final = CommittedOffset(-1, -1, "", -1)
"""Stands for an offset that an open transaction may change. The client gets UNSTABLE_OFFSET_COMMIT."""


class PartitionCommit(NamedTuple):
    """One position to commit. `leader_epoch` is -1 if unknown. `topic_id` is needed to accept an earlier member
    epoch.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    topic_id: bytes = b""


def _any_topic(topic_id: bytes) -> object | None:
    return topic_id


class CommitRequest(NamedTuple):
    """Positions that a group commits.

    `generation_id`      -1 (with an empty `member_id`) for a client that does not use group management.
    `retention_time_ms` from clients that still send one (v2 to v4), else -1.
    `knows_member_epochs` True from v9 on: the client may be a member of a consumer group. If the group does not exist,
                         a client with a generation gets GROUP_ID_NOT_FOUND; an older client gets ILLEGAL_GENERATION.
    `owner`              the principal towards whose share a new group and the offsets count.
    `topic_by_id`        returns a topic; None if it does not exist, e.g. because it was deleted while the request
                         waited.
    """

    group_id: str
    commits: Sequence[PartitionCommit]
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    retention_time_ms: int = -1
    knows_member_epochs: bool = True
    owner: str = ""
    topic_by_id: Callable[[bytes], object | None] = _any_topic

    def error_of(self, commit: PartitionCommit, metadata_max_bytes: int) -> ErrorCode:
        """Return the error that refuses a position, or NONE. The caller holds the group."""
        if len(commit.metadata or "") > metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        found = self.topic_by_id(commit.topic_id)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else ErrorCode.NONE


class OffsetManager:
    """The offsets of all groups. Handlers call it on any thread, the scheduler calls `expire`.

    It takes the lock of each group that it reads or changes.
    """

    def __init__(
        self,
        clock: Clock,
        store: Store,
        settings: BrokerSettings,
        registry: GroupRegistry,
        rebalancer: Rebalancer,
    ) -> None:
        self._clock = clock
        self._store = store
        self._settings = settings
        self._registry = registry
        self._rebalancer = rebalancer
        # Changed by the store's thread.
        self.committed = self.deleted = self.expired = 0
        """Numbers of offsets that were committed outside transactions, deleted by request, and deleted because of their
        age.
        """

    # Commit

    def commit(self, request: CommitRequest, reply: Callable[[Sequence[ErrorCode]], None]) -> None:
        """Commit positions. When they are durable, `reply` gets an error code for each, in their order."""
        group = self._registry.get(request.group_id)
        if group is None:
            if request.generation_id >= 0:
                unknown = ErrorCode.GROUP_ID_NOT_FOUND if request.knows_member_epochs else ErrorCode.ILLEGAL_GENERATION
                reply([unknown] * len(request.commits))
                return
            if all(map(self._is_too_large, request.commits)):
                # If no position can be stored, no group is created.
                reply([ErrorCode.OFFSET_METADATA_TOO_LARGE] * len(request.commits))
                return
            try:
                group = self._registry.get_or_create(request.group_id, request.owner)
            except KafkaError as error:
                reply([error.error_code] * len(request.commits))
                return
        with group:
            try:
                self._validate_commit(group, request)
            except KafkaError as error:
                group.answer(reply, [error.error_code] * len(request.commits))
                return
            self._commit_held(group, request, reply)

    def _is_too_large(self, commit: PartitionCommit) -> bool:
        return len(commit.metadata or "") > self._settings.offset_metadata_max_bytes

    def _validate_commit(self, group: Group, request: CommitRequest) -> None:
        if isinstance(group, ConsumerGroup | StreamsGroup) and not request.knows_member_epochs:
            group.require_classic_protocol(request.member_id)
        partitions = ((each.topic_id, each.partition) for each in request.commits if not self._is_too_large(each))
        group.validate_commit(request.member_id, request.group_instance_id, request.generation_id, partitions)
        if isinstance(group, ClassicGroup) and group.state in (STABLE, PREPARING_REBALANCE):
            member = group.members.get(request.member_id)
            if member is not None:
                self._rebalancer.keep_alive(group, member)

    def _commit_held(self, group: Group, request: CommitRequest, reply: Callable[[Sequence[ErrorCode]], None]) -> None:
        now_ms = self._clock.wall_ms()
        commit_timestamp_ms = group.book.commit_timestamp_ms(now_ms)
        # In Kafka this sum overflows for a retention near the largest long, and the offsets expire at once.
        keeps = request.retention_time_ms != -1
        expire_ms = min(now_ms + request.retention_time_ms, INT64_MAX) if keeps else None
        outcomes = [request.error_of(each, self._settings.offset_metadata_max_bytes) for each in request.commits]
        accepted: list[tuple[str, int, CommittedOffset]] = []
        places: list[int] = []
        for index, commit in enumerate(request.commits):
            if outcomes[index] is not ErrorCode.NONE:
                continue
            metadata = commit.metadata or ""
            committed = CommittedOffset(
                commit.offset, commit.leader_epoch, metadata, commit_timestamp_ms, expire_ms, request.owner
            )
            accepted.append((commit.topic, commit.partition, committed))
            places.append(index)
        refused, reserved_bytes = group.book.reserve(request.owner, accepted)
        if refused:
            for place in refused:
                outcomes[places[place]] = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            without = set(refused)
            accepted = [each for place, each in enumerate(accepted) if place not in without]
        if not accepted:
            group.answer(reply, outcomes)
            return

        def on_durable(error: StoreError | None) -> None:
            with group:
                group.book.pending_writes -= 1
                if error is None:
                    self.committed += len(accepted)
                    group.book.put(accepted, (request.owner, reserved_bytes))
                    group.answer(reply, outcomes)
                else:
                    group.book.release(request.owner, reserved_bytes)
                    failed = [ErrorCode.NOT_COORDINATOR if code is ErrorCode.NONE else code for code in outcomes]
                    group.answer(reply, failed)

        group.book.pending_writes += 1
        self._store.submit([persistence.put_offset(group.group_id, *each) for each in accepted], on_durable)

    # Fetch

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Return the error that prevents a member from fetching offsets (OffsetFetch v9), or NONE. Only members of
        consumer and streams groups are checked.
        """
        group = self._registry.get(group_id)
        if group is None:
            return ErrorCode.NONE
        with group:
            try:
                group.validate_fetch(member_id, member_epoch)
            except KafkaError as error:
                return ErrorCode(error.error_code)
        return ErrorCode.NONE

    def fetch(
        self,
        requests: Sequence[tuple[str, TopicPartitions | None]],
        reply: Callable[[Sequence[FetchedOffsets]], None],
        *,
        require_stable: bool = False,
    ) -> None:
        """Pass to `reply` the committed offsets for each (group id, partitions or None for all), in their order.

        With `require_stable` (KIP-447), the fetch waits for commits that are being written, and offsets that an open
        transaction may change are `UNSTABLE`, as in Kafka. A group that does not exist has no offsets; this is not an
        error.
        """

        def fetched() -> list[FetchedOffsets]:
            return [self._fetch(*request, require_stable) for request in requests]

        if require_stable and any(self._has_pending_writes(group_id) for group_id, _ in requests):
            self._store.submit((), lambda _: reply(fetched()))
        else:
            reply(fetched())

    def count(self, group_id: str) -> int:
        """Return the number of a group's offsets."""
        group = self._registry.get(group_id)
        if group is None:
            return 0
        with group:
            return sum(map(len, group.offsets.values()))

    def _has_pending_writes(self, group_id: str) -> bool:
        group = self._registry.get(group_id)
        return group is not None and group.book.pending_writes > 0

    def _fetch(self, group_id: str, partitions: TopicPartitions | None, require_stable: bool) -> FetchedOffsets:
        group = self._registry.get(group_id)
        if group is None:
            return {} if partitions is None else {topic: dict.fromkeys(each) for topic, each in partitions.items()}
        with group:
            offsets, book = group.offsets, group.book
            if partitions is None:
                partitions = {topic: list(by_partition) for topic, by_partition in offsets.items()}
            fetched: dict[str, dict[int, CommittedOffset | None]] = {}
            for topic, indexes in partitions.items():
                by_partition = offsets.get(topic, {})
                fetched[topic] = {index: by_partition.get(index) for index in indexes}
                if require_stable and book.pending:
                    fetched[topic].update((index, UNSTABLE) for index in indexes if book.is_unstable(topic, index))
            return fetched

    # Delete

    def delete(
        self,
        group_id: str,
        partitions: TopicPartitions,
        reply: Callable[[Mapping[str, ErrorCode]], None],
    ) -> None:
        """Delete offsets of topics to which no member subscribes. When the deletion is durable, `reply` gets an error
        code for each topic.

        Raises KafkaError: GROUP_ID_NOT_FOUND, or NON_EMPTY_GROUP for a group with members that are not consumers.
        """
        group = self._registry.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        with group:
            if group.is_dead:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
            group.validate_offset_delete()
            outcomes = {
                topic: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to(topic) else ErrorCode.NONE
                for topic in partitions
            }
            partitions_to_delete = [
                (topic, index)
                for topic, indexes in partitions.items()
                if outcomes[topic] is ErrorCode.NONE
                for index in indexes
            ]

            def on_durable(error: StoreError | None) -> None:
                if error is None:
                    self.deleted += len(partitions_to_delete)
                else:
                    for topic, code in outcomes.items():
                        outcomes[topic] = ErrorCode.NOT_COORDINATOR if code is ErrorCode.NONE else code
                reply(outcomes)

            self._delete_held(group, partitions_to_delete, on_durable)

    def topics_deleted(self, topics: Set[str]) -> None:
        """Delete the offsets of deleted topics, including those that are being written and those pending in
        transactions.

        The topics' ids are unknown by now, so a thread that takes a group's lock later cannot commit offsets for them.
        """
        for group in self._registry.all():
            with group:
                book = group.book
                if book.pending_writes or group.offsets.keys() & topics or book.pending_of(topics):
                    self._delete_topics_held(group, topics)

    def _delete_topics_held(self, group: Group, topics: Set[str]) -> None:
        book = group.book

        def on_durable(error: StoreError | None) -> None:
            if error is not None:
                return
            with group:
                # The store confirms writes in order. So the memory has all commits from before this deletion, and no
                # later one, e.g. for a new topic with the name.
                book.forget_pending(book.pending_of(topics))
                book.remove(
                    [(topic, index) for topic in group.offsets.keys() & topics for index in group.offsets[topic]]
                )

        self._store.submit(persistence.delete_offsets_of(group.group_id, sorted(topics)), on_durable)

    def _delete_held(
        self,
        group: Group,
        partitions: Sequence[tuple[str, int]],
        then: Callable[[StoreError | None], None] | None = None,
    ) -> None:
        """Delete offsets of these partitions, including those that are pending in open transactions."""
        book = group.book

        def on_durable(error: StoreError | None) -> None:
            with group:
                if error is None:
                    book.forget_pending(partitions)
                    book.remove(partitions)
                if then is not None:
                    group.answer(then, error)

        statements = [persistence.delete_offset(group.group_id, topic, index) for topic, index in partitions]
        statements += [
            persistence.delete_pending_offset(group.group_id, topic, index)
            for topic, index in partitions
            if book.pending_writes or book.is_unstable(topic, index)
        ]
        self._store.submit(statements, on_durable)

    # Expiry

    def expire(self) -> None:
        """Delete offsets that were unused for `offsets.retention.minutes`, and groups that are then empty."""
        retention_ms = self._settings.offsets_retention_minutes * _MS_PER_MINUTE
        now_ms = self._clock.wall_ms()
        for group in self._registry.all():
            with group:
                self._expire_held(group, now_ms, retention_ms)

    def _expire_held(self, group: Group, now_ms: int, retention_ms: int) -> None:
        if group.book.pending_writes:
            # A commit that is being written may replace an offset that looks expired. A deletion would then delete the
            # new one.
            return
        expired = [
            (topic, index)
            for topic, by_partition in group.offsets.items()
            if not group.is_subscribed_to(topic)
            for index, committed in by_partition.items()
            if not group.book.is_unstable(topic, index) and _is_expired(group, committed, now_ms, retention_ms)
        ]
        if expired:
            log.info("group %s: %d offsets have expired", group.log_name, len(expired))

            def on_durable(error: StoreError | None) -> None:
                if error is None:
                    self.expired += len(expired)

            self._delete_held(group, expired, on_durable)
        if group.is_empty and len(expired) == sum(map(len, group.offsets.values())):
            self._delete_group(group)

    def _delete_group(self, group: Group) -> None:
        if group.is_expected or group.book.pending:
            return

        def on_durable(error: StoreError | None) -> None:
            if error is None:
                with group:
                    group.book.clear()
                    self._registry.remove_if_unused(group)

        self._store.submit(persistence.delete_group(group.group_id), on_durable)


def _is_expired(group: Group, committed: CommittedOffset, now_ms: int, retention_ms: int) -> bool:
    """Return True if the retention of an offset is over (KIP-211). No member subscribes to its topic."""
    since_ms = group.retained_since_ms(committed)
    if since_ms is None:
        return False
    if committed.expire_timestamp_ms is not None:
        return now_ms >= committed.expire_timestamp_ms
    return now_ms - since_ms >= retention_ms
