"""InitProducerId, versions 0 to 5.

Gives an idempotent producer a new id with epoch 0, even if it sends the id that it has (KIP-360). Follows
`TransactionCoordinator.handleInitProducerId`.

- An empty transactional id, a producer id without an epoch or an epoch without an id: INVALID_REQUEST.
- Deviation: transactions are not served. A transactional id: UNSUPPORTED_VERSION, which no client retries; the errors
  that Kafka has for transactional ids would mean a missing permission or a transient failure.

Authorization: WRITE on the transactional id; without one, IDEMPOTENT_WRITE on the cluster or WRITE on any
topic (KIP-679).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm import ErrorCode, KafkaError, handles
from klamm.acl import AclOperation, ResourceType
from klamm.wire.messages import init_producer_id
from klamm.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from klamm.wire.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from klamm_broker.security.authorization import denial, may_cluster

if TYPE_CHECKING:
    from klamm import RequestContext
    from klamm_broker.services import BrokerServices


@handles(init_producer_id, versions=range(0, 6))
def new_producer_id(
    broker: BrokerServices, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    """Hand out a producer id. Raises KafkaError."""
    if request.transactional_id is not None:
        if not context.authorize(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            raise denial(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        empty = request.transactional_id == ""
        raise KafkaError(ErrorCode.INVALID_REQUEST if empty else ErrorCode.UNSUPPORTED_VERSION)
    if not may_cluster(
        context, AclOperation.IDEMPOTENT_WRITE, log_if_denied=False
    ) and not context.authorize_by_resource_type(AclOperation.WRITE, ResourceType.TOPIC):
        raise denial(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return InitProducerIdResponse(producer_id=broker.producer_ids.allocate(), producer_epoch=0)
