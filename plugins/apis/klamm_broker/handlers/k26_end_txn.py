"""EndTxn, versions 0 to 5.

Commits or aborts the transaction of a producer. From version 5 on (KIP-890) each end increases the epoch, which the
response contains, and a transaction that has written nothing may be aborted. Follows `KafkaApis.handleEndTxnRequest`
and `TransactionCoordinator.endTransaction`. The response is sent when the transaction is complete, so that the next
transaction may begin at once. Kafka responds when the decision is durable. klamm does this too if the markers cannot be
written for now.

- An unknown transactional id or another producer id: INVALID_PRODUCER_ID_MAPPING. Another epoch: PRODUCER_FENCED,
  before v2 (KIP-588) INVALID_PRODUCER_EPOCH.
- No transaction, or one that has ended the other way: INVALID_TXN_STATE.
- The transaction is ending the same way, or another request is in progress: CONCURRENT_TRANSACTIONS.

Authorization: WRITE on the transactional id.
"""

from __future__ import annotations

from klamm import ErrorCode, Pending, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from klamm_broker.security.authorization import require_transactional_id
from klamm_broker.services import BrokerServices
from klamm_broker.transactions.ends import ProducerIdAndEpoch

_FIRST_VERSION_WITH_FENCED = 2
_FIRST_VERSION_WITH_EPOCHS = 5


def end_transaction(broker: BrokerServices, request: EndTxnRequest, context: RequestContext) -> Pending:
    """Commit or abort. Raises KafkaError. Runs on a request handler's thread."""
    require_transactional_id(context, AclOperation.WRITE, request.transactional_id)
    broker.cluster.check_coordinates(request.transactional_id)

    def reply(error: ErrorCode, producer: ProducerIdAndEpoch) -> None:
        if error is ErrorCode.PRODUCER_FENCED and context.api_version < _FIRST_VERSION_WITH_FENCED:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        context.respond(EndTxnResponse(error_code=error, producer_id=producer[0], producer_epoch=producer[1]))

    broker.transactions.end(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        reply,
        committed=request.committed,
        client_version=2 if context.api_version >= _FIRST_VERSION_WITH_EPOCHS else 0,
    )
    return context.later()
