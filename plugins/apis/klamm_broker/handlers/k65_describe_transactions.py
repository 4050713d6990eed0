"""DescribeTransactions, version 0 (KIP-664).

Describes state, producer, timeout, start and partitions of transactional ids. A group appears as a partition of
`__consumer_offsets`. Follows `KafkaApis.handleDescribeTransactionsRequest`.

- An empty id: INVALID_REQUEST. An unknown id: TRANSACTIONAL_ID_NOT_FOUND.

Authorization: DESCRIBE on each transactional id, and on each topic; topics without this permission are left
out.
"""

from __future__ import annotations

from klamm import ErrorCode, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from klamm_broker.security.authorization import may_topic, may_transactional_id
from klamm_broker.services import BrokerServices


def describe(
    broker: BrokerServices, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """Describe transactional ids, in the order of the request. Runs on the processor's thread, so it must not block."""
    partitions = 0
    for transactional_id in request.transactional_ids:
        transaction = broker.transactions.registry.get(transactional_id)
        partitions += len(transaction.record.partitions) if transaction is not None else 0
        context.expect_answer(partitions)
    states = []
    answer_bytes = 0
    for transactional_id in request.transactional_ids:
        state = _describe(broker, context, transactional_id)
        answer_bytes += sum(len(topic.topic) + 4 * len(topic.partitions) for topic in state.topics)
        context.check_answer_bytes(answer_bytes)
        states.append(state)
    return DescribeTransactionsResponse(transaction_states=states)


def _describe(broker: BrokerServices, context: RequestContext, transactional_id: str) -> TransactionState:
    if not may_transactional_id(context, AclOperation.DESCRIBE, transactional_id):
        return TransactionState(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, transactional_id)
    if not transactional_id:
        return TransactionState(ErrorCode.INVALID_REQUEST)
    if not broker.cluster.coordinates(transactional_id):
        return TransactionState(ErrorCode.NOT_COORDINATOR, transactional_id)
    transaction = broker.transactions.registry.get(transactional_id)
    if transaction is None:
        return TransactionState(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
    record = transaction.record
    topics: dict[str, TopicData] = {}
    for name, index in sorted(record.partitions):
        topics.setdefault(name, TopicData(name)).partitions.append(index)
    return TransactionState(
        0,
        transactional_id,
        record.state.value,
        record.timeout_ms,
        record.start_ms,
        record.producer_id,
        record.producer_epoch,
        [topic for name, topic in topics.items() if may_topic(context, AclOperation.DESCRIBE, name)],
    )
