"""InitProducerId, versions 0 to 5.

Without a transactional id, the answer is a new producer id with epoch 0, even if the producer has an id (KIP-360). With
a transactional id, the answer is its producer id with the next epoch, which fences all earlier producers. An open
transaction is aborted first: the answer is CONCURRENT_TRANSACTIONS, and the client tries again. Follows
`KafkaApis.handleInitProducerIdRequest` and `TransactionCoordinator.handleInitProducerId`.

- A producer that continues after an error sends its id and epoch (v3, KIP-360): PRODUCER_FENCED if another producer has
  taken over, before v4 (KIP-588) INVALID_PRODUCER_EPOCH.
- An empty transactional id, a producer id without an epoch or an epoch without an id: INVALID_REQUEST.
- A timeout that is not positive or above `transaction.max.timeout.ms`: INVALID_TRANSACTION_TIMEOUT.
- Version 6 (two-phase commit, KIP-939) is not stable in Kafka and not served.

Authorization: WRITE on the transactional id; without one, IDEMPOTENT_WRITE on the cluster or WRITE on any
topic (KIP-679).
"""

from __future__ import annotations

from klamm import ErrorCode, KafkaError, Pending, RequestContext
from klamm.acl import AclOperation, ResourceType
from klamm.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from klamm.wire.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from klamm_broker.limits.owners import owner_of
from klamm_broker.security.authorization import denial, may_cluster, require_transactional_id
from klamm_broker.services import BrokerServices
from klamm_broker.transactions.ends import ProducerIdAndEpoch

_FIRST_VERSION_WITH_FENCED = 4


def new_producer_id(
    broker: BrokerServices, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse | Pending:
    """Return a producer id and epoch. Raises KafkaError. Runs on a request handler's thread."""
    transactional_id = request.transactional_id
    if transactional_id is not None:
        require_transactional_id(context, AclOperation.WRITE, transactional_id)
    elif not may_cluster(
        context, AclOperation.IDEMPOTENT_WRITE, log_if_denied=False
    ) and not context.authorize_by_resource_type(AclOperation.WRITE, ResourceType.TOPIC):
        raise denial(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if transactional_id is not None:
        broker.cluster.check_coordinates(transactional_id)
    if transactional_id is None:
        return InitProducerIdResponse(producer_id=broker.producer_ids.allocate(), producer_epoch=0)

    def reply(error: ErrorCode, producer: ProducerIdAndEpoch) -> None:
        if error is ErrorCode.PRODUCER_FENCED and context.api_version < _FIRST_VERSION_WITH_FENCED:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        context.respond(InitProducerIdResponse(error_code=error, producer_id=producer[0], producer_epoch=producer[1]))

    goes_on = request.producer_id != NO_PRODUCER_ID
    broker.transactions.init_producer_id(
        transactional_id,
        request.transaction_timeout_ms,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch) if goes_on else None,
        reply,
        owner_of(context),
    )
    return context.later()
