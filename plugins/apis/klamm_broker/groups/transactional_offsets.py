"""Offsets that are committed as part of a transaction (KIP-98, KIP-447).

Until the transaction ends, they are stored durably, separately from the committed offsets. Follows Kafka's
`OffsetMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from klamm import ErrorCode, KafkaError
from klamm.runtime import Clock
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.groups import persistence
from klamm_broker.groups.group import CommittedOffset, Group
from klamm_broker.groups.group_registry import GroupRegistry
from klamm_broker.groups.offsets import CommitRequest, PartitionCommit
from klamm_broker.storage.store import Statement, Store, StoreError


class TransactionalOffsets:
    """The pending offsets of open transactions in all groups. The handler of TxnOffsetCommit adds them on any thread;
    the transaction coordinator commits or drops them when a transaction ends.
    """

    def __init__(self, clock: Clock, store: Store, settings: BrokerSettings, registry: GroupRegistry) -> None:
        self._clock = clock
        self._store = store
        self._settings = settings
        self._registry = registry
        # The groups with pending offsets, by producer. Only the store's thread uses this.
        self._group_ids: dict[int, set[str]] = {}
        self.committed = 0
        """Number of offsets that were committed within transactions. Changed by the store's thread."""

    def load(self) -> None:
        """Read which groups have pending offsets; called before the first request."""
        for group in self._registry.all():
            for producer_id in group.book.pending:
                self._group_ids.setdefault(producer_id, set()).add(group.group_id)

    def commit(self, producer_id: int, request: CommitRequest, reply: Callable[[Sequence[ErrorCode]], None]) -> None:
        """Store offsets as pending until the transaction ends. When they are durable, `reply` gets an error code for
        each.

        This never waits. The caller has checked that the transaction is open and includes the group.
        """
        group = self._registry.get(request.group_id)
        if group is None:
            if request.generation_id >= 0:
                unknown = ErrorCode.GROUP_ID_NOT_FOUND if request.knows_member_epochs else ErrorCode.ILLEGAL_GENERATION
                reply([unknown] * len(request.commits))
                return
            try:
                group = self._registry.get_or_create(request.group_id, request.owner)
            except KafkaError as error:
                reply([error.error_code] * len(request.commits))
                return
        with group:
            try:
                group.validate_transactional_commit(
                    request.member_id,
                    request.group_instance_id,
                    request.generation_id,
                    ((each.topic_id, each.partition) for each in request.commits if not self._is_too_large(each)),
                )
            except KafkaError as error:
                code = error.error_code
                if code == ErrorCode.STALE_MEMBER_EPOCH and not request.knows_member_epochs:
                    code = ErrorCode.ILLEGAL_GENERATION
                group.answer(reply, [code] * len(request.commits))
                return
            self._commit_held(group, producer_id, request, reply)

    def _is_too_large(self, commit: PartitionCommit) -> bool:
        return len(commit.metadata or "") > self._settings.offset_metadata_max_bytes

    def _commit_held(
        self, group: Group, producer_id: int, request: CommitRequest, reply: Callable[[Sequence[ErrorCode]], None]
    ) -> None:
        keys = [(commit.topic, commit.partition) for commit in request.commits]
        timestamp_ms = group.book.pending_timestamp_ms(self._clock.wall_ms(), keys)
        outcomes = [request.error_of(each, self._settings.offset_metadata_max_bytes) for each in request.commits]
        accepted: dict[tuple[str, int], CommittedOffset] = {}
        for index, commit in enumerate(request.commits):
            if outcomes[index] is ErrorCode.NONE:
                pending = CommittedOffset(
                    commit.offset, commit.leader_epoch, commit.metadata or "", timestamp_ms, owner=request.owner
                )
                accepted[commit.topic, commit.partition] = pending
        wanted = [(*key, offset) for key, offset in accepted.items()]
        refused, reserved_bytes = group.book.reserve(request.owner, wanted, producer_id)
        for place in refused:
            del accepted[wanted[place][:2]]
        for index, key in enumerate(keys):
            if outcomes[index] is ErrorCode.NONE and key not in accepted:
                outcomes[index] = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        if not accepted:
            group.answer(reply, outcomes)
            return

        def on_durable(error: StoreError | None) -> None:
            with group:
                group.book.pending_writes -= 1
                if error is None:
                    self.committed += len(accepted)
                    group.book.add_pending(producer_id, accepted, (request.owner, reserved_bytes))
                    self._group_ids.setdefault(producer_id, set()).add(group.group_id)
                    group.answer(reply, outcomes)
                else:
                    group.book.release(request.owner, reserved_bytes)
                    failed = [ErrorCode.NOT_COORDINATOR if code is ErrorCode.NONE else code for code in outcomes]
                    group.answer(reply, failed)

        group.book.pending_writes += 1
        self._store.submit(
            [
                persistence.put_pending_offset(producer_id, group.group_id, topic, partition, pending)
                for (topic, partition), pending in accepted.items()
            ],
            on_durable,
        )

    def end(self, producer_id: int, then: Callable[[StoreError | None], None], *, committed: bool) -> None:
        """Commit or drop a producer's pending offsets, because WriteTxnMarkers has ended its transaction. Then call
        `then`, when this is durable or has failed.

        The state of this broker's own transaction coordinator does not change.
        """

        def on_durable(error: StoreError | None) -> None:
            if error is None:
                self.ended(producer_id, committed=committed)
            then(error)

        self._store.submit(self.statements_of_end(producer_id, committed=committed), on_durable)

    def statements_of_end(self, producer_id: int, *, committed: bool) -> list[Statement]:
        """Return the statements that commit or drop a transaction's pending offsets. The transaction coordinator
        writes them together with its own record.
        """
        return persistence.end_pending_offsets(producer_id, committed=committed)

    def ended(self, producer_id: int, *, committed: bool) -> None:
        """Apply the durable end of a producer's transaction. The store's thread calls this."""
        for group_id in self._group_ids.pop(producer_id, ()):
            group = self._registry.get(group_id)
            if group is None:
                continue
            with group:
                pending = group.book.take_pending(producer_id)
                if committed:
                    _commit_all(group, pending)


def _commit_all(group: Group, pending: Mapping[tuple[str, int], CommittedOffset]) -> None:
    current = (
        (topic, index, offset, group.offsets.get(topic, {}).get(index)) for (topic, index), offset in pending.items()
    )
    group.book.put(
        [
            (topic, index, offset)
            for topic, index, offset, known in current
            if known is None or offset.commit_timestamp_ms >= known.commit_timestamp_ms
        ]
    )
