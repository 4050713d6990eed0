"""InitProducerId, versions 0 to 5.

Gives an idempotent producer a new id with epoch 0, whatever id it had (KIP-360). Follows
`TransactionCoordinator.handleInitProducerId`.

- An empty transactional id: INVALID_REQUEST.
- Deviation: transactions are not served. A transactional id: UNSUPPORTED_VERSION, which no client retries; the errors
  that Kafka has for transactional ids would tell of a missing permission or of a moment's trouble.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm import ErrorCode, KafkaError, handles
from klamm.wire.messages import init_producer_id
from klamm.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from klamm import RequestContext
    from klamm_broker.broker import Broker


@handles(init_producer_id, versions=range(0, 6))
def new_producer_id(broker: Broker, request: InitProducerIdRequest, _context: RequestContext) -> InitProducerIdResponse:
    """Hand out a producer id."""
    if request.transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    return InitProducerIdResponse(producer_id=broker.producer_ids.allocate(), producer_epoch=0)
