"""TxnOffsetCommit, versions 0 to 6.

Commits positions of a group as part of a transaction: they take effect when it commits. Before version 5 (KIP-890),
AddOffsetsToTxn must have added the group to the transaction. From version 5 on, this request adds it. Follows
`KafkaApis.handleTxnOffsetCommitRequest` and `OffsetMetadataManager.commitTransactionalOffset`.

- A topic or partition that does not exist: UNKNOWN_TOPIC_OR_PARTITION; from v6, which names topics by id (KIP-1319),
  UNKNOWN_TOPIC_ID.
- A group that is not part of the transaction: INVALID_TXN_STATE, in version 4 TRANSACTION_ABORTABLE. An unknown
  transactional id or another producer id: INVALID_PRODUCER_ID_MAPPING; another epoch: INVALID_PRODUCER_EPOCH; while the
  transaction ends: CONCURRENT_TRANSACTIONS.
- From version 3 on (KIP-447) the member is checked: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION. From v6
  on: GROUP_ID_NOT_FOUND for a group that does not exist if a generation is given, STALE_MEMBER_EPOCH for another member
  epoch.

Authorization: WRITE on the transactional id, READ on the group and on each topic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from klamm import ErrorCode, KafkaError, Pending, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from klamm_broker.groups.offsets import CommitRequest, PartitionCommit
from klamm_broker.handlers.k08_offset_commit import accepted_commits
from klamm_broker.limits.owners import owner_of
from klamm_broker.security.authorization import require_group, require_transactional_id
from klamm_broker.services import BrokerServices
from klamm_broker.transactions.ends import ProducerIdAndEpoch
from klamm_broker.transactions.offsets_partition import offsets_partition

_FIRST_VERSION_WITH_ABORTABLE = 4
_FIRST_VERSION_THAT_ADDS = 5
_FIRST_VERSION_WITH_TOPIC_IDS = 6
_CLIENT_VERSION = 2


def commit_in_transaction(
    broker: BrokerServices, request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse | Pending:
    """Store offsets of existing partitions as pending. Each other partition gets an error. Raises KafkaError. Runs on
    the processor's thread, so it must not block.
    """
    require_transactional_id(context, AclOperation.WRITE, request.transactional_id)
    require_group(context, AclOperation.READ, request.group_id)
    broker.cluster.check_coordinates(request.group_id)
    by_id = context.api_version >= _FIRST_VERSION_WITH_TOPIC_IDS
    response = TxnOffsetCommitResponse()
    kinds = TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition
    commits, reply = accepted_commits(broker, context, request.topics, response, *kinds, by_id=by_id)
    if not commits:
        return response
    _commit(broker, request, context, commits, reply)
    return context.later()


def _commit(
    broker: BrokerServices,
    request: TxnOffsetCommitRequest,
    context: RequestContext,
    commits: Sequence[PartitionCommit],
    reply: Callable[[Sequence[ErrorCode]], None],
) -> None:
    version = context.api_version
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    partition = offsets_partition(request.group_id)
    wanted = CommitRequest(
        request.group_id,
        commits,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        knows_member_epochs=version >= _FIRST_VERSION_WITH_TOPIC_IDS,
        owner=owner_of(context),
        topic_by_id=broker.topics.by_id,
    )

    def fail(error: int) -> None:
        reply([_error_for(ErrorCode(error), version)] * len(commits))

    def commit() -> None:
        broker.groups.transactional_offsets.commit(producer.producer_id, wanted, reply)

    def added(error: ErrorCode) -> None:
        if error:
            fail(error)
            return
        try:
            broker.transactions.within(request.transactional_id, producer, partition, commit)
        except KafkaError as caught:
            fail(caught.error_code)

    if not request.group_id:
        fail(ErrorCode.INVALID_GROUP_ID)
    elif version >= _FIRST_VERSION_THAT_ADDS:
        broker.transactions.add_partitions(request.transactional_id, producer, [partition], _CLIENT_VERSION, added)
    else:
        added(ErrorCode.NONE)


def _error_for(error: ErrorCode, version: int) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < _FIRST_VERSION_WITH_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return error
