"""AddPartitionsToTxn, versions 0 to 5.

Adds partitions to a transaction, and opens it if necessary. Up to version 3, producers send it for one transaction.
From version 4 on, brokers send it for several, also to verify that partitions were added (`verify_only`, KIP-890).
Follows `KafkaApis.handleAddPartitionsToTxnRequest` and `TransactionCoordinator.handleAddPartitionsToTransaction`.

- A topic that may not be written: TOPIC_AUTHORIZATION_FAILED; a partition that does not exist:
  UNKNOWN_TOPIC_OR_PARTITION. In these cases, the other partitions get OPERATION_NOT_ATTEMPTED.
- An unknown transactional id or another producer id: INVALID_PRODUCER_ID_MAPPING. Another epoch: PRODUCER_FENCED,
  before v2 (KIP-588) INVALID_PRODUCER_EPOCH.
- While a transaction ends, or another request is in progress: CONCURRENT_TRANSACTIONS.
- A partition to be verified that is not part of the transaction: TRANSACTION_ABORTABLE.

Authorization: up to version 3 WRITE on the transactional id and on each topic that is not internal, from
version 4 on CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from klamm import ErrorCode, KafkaError, Pending, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from klamm_broker.handlers.countdown import call_after
from klamm_broker.security.authorization import may_topic, require_cluster, require_transactional_id
from klamm_broker.services import BrokerServices
from klamm_broker.topics.names import INTERNAL_TOPICS
from klamm_broker.transactions.ends import ProducerIdAndEpoch
from klamm_broker.transactions.transaction import TopicPartition

_FIRST_VERSION_OF_BROKERS = 4
_FIRST_VERSION_WITH_FENCED = 2
_VERSION_OF_CLIENTS, _VERSION_OF_BROKERS = 0, 2
"""The `transaction.version` of the clients that send the request."""

_Outcomes = Mapping["TopicPartition", ErrorCode]


def add_partitions(
    broker: BrokerServices, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse | Pending:
    """Add or verify the partitions of each transaction, and answer when all are done. Raises KafkaError. Runs on a
    request handler's thread.
    """
    if context.api_version >= _FIRST_VERSION_OF_BROKERS:
        require_cluster(context, AclOperation.CLUSTER_ACTION)
        transactions = list(request.transactions)
    else:
        transactions = [
            AddPartitionsToTxnTransaction(
                request.v3_and_below_transactional_id,
                request.v3_and_below_producer_id,
                request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
        ]
    if not transactions:
        return AddPartitionsToTxnResponse()
    answer = _Answer(context, transactions)
    for position, transaction in enumerate(transactions):
        _add(broker, context, transaction, answer.slot(position))
    return context.later()


class _Answer:
    """The answer to a request. It collects the results of all transactions."""

    def __init__(self, context: RequestContext, transactions: list[AddPartitionsToTxnTransaction]) -> None:
        self._context = context
        self._transactions = transactions
        self._results: list[list[AddPartitionsToTxnTopicResult]] = [[] for _ in transactions]
        self._done = call_after(len(transactions), self._respond)

    def slot(self, position: int) -> Callable[[_Outcomes], None]:
        """Return a function that takes the results of one transaction."""

        def settle(outcomes: _Outcomes) -> None:
            by_topic: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
            for (topic, index), error in outcomes.items():
                by_topic.setdefault(topic, []).append(AddPartitionsToTxnPartitionResult(index, error))
            self._results[position] = [AddPartitionsToTxnTopicResult(*each) for each in by_topic.items()]
            self._done()

        return settle

    def _respond(self) -> None:
        if self._context.api_version < _FIRST_VERSION_OF_BROKERS:
            self._context.respond(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=self._results[0]))
            return
        results = [
            AddPartitionsToTxnResult(transaction.transactional_id, topics)
            for transaction, topics in zip(self._transactions, self._results, strict=True)
        ]
        self._context.respond(AddPartitionsToTxnResponse(results_by_transaction=results))


def _add(
    broker: BrokerServices,
    context: RequestContext,
    wanted: AddPartitionsToTxnTransaction,
    settle: Callable[[_Outcomes], None],
) -> None:
    partitions = [(topic.name, index) for topic in wanted.topics for index in topic.partitions]
    is_client = context.api_version < _FIRST_VERSION_OF_BROKERS

    def settle_all(error: ErrorCode) -> None:
        if error is ErrorCode.PRODUCER_FENCED and context.api_version < _FIRST_VERSION_WITH_FENCED:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        settle(dict.fromkeys(partitions, error))

    producer = ProducerIdAndEpoch(wanted.producer_id, wanted.producer_epoch)
    try:
        if is_client:
            require_transactional_id(context, AclOperation.WRITE, wanted.transactional_id)
        broker.cluster.check_coordinates(wanted.transactional_id)
        refused = _refused(broker, context, partitions, is_client=is_client)
        if refused:
            settle({each: refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in partitions})
        elif wanted.verify_only:
            settle(broker.transactions.verify_partitions(wanted.transactional_id, producer, partitions))
        else:
            version = _VERSION_OF_CLIENTS if is_client else _VERSION_OF_BROKERS
            broker.transactions.add_partitions(wanted.transactional_id, producer, partitions, version, settle_all)
    except KafkaError as error:
        settle_all(ErrorCode(error.error_code))


def _refused(
    broker: BrokerServices, context: RequestContext, partitions: list[TopicPartition], *, is_client: bool
) -> dict[TopicPartition, ErrorCode]:
    refused = {}
    names = {name for name, _ in partitions}
    denied = {
        name
        for name in names
        if is_client and (name in INTERNAL_TOPICS or not may_topic(context, AclOperation.WRITE, name))
    }
    for name, index in partitions:
        topic = broker.topics.get(name)
        if name in denied:
            refused[name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic is None or topic.partition(index) is None:
            refused[name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused
