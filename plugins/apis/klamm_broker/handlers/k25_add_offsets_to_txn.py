"""AddOffsetsToTxn, versions 0 to 4.

Adds the offsets of a group to a transaction, and opens it if necessary. Follows
`KafkaApis.handleAddOffsetsToTxnRequest`; errors as AddPartitionsToTxn.

Authorization: WRITE on the transactional id, READ on the group.
"""

from __future__ import annotations

from klamm import ErrorCode, Pending, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from klamm_broker.security.authorization import require_group, require_transactional_id
from klamm_broker.services import BrokerServices
from klamm_broker.transactions.ends import ProducerIdAndEpoch
from klamm_broker.transactions.offsets_partition import offsets_partition

_FIRST_VERSION_WITH_FENCED = 2
_CLIENT_VERSION = 0


def add_offsets(broker: BrokerServices, request: AddOffsetsToTxnRequest, context: RequestContext) -> Pending:
    """Add the group, and answer when this is durable. Raises KafkaError. Runs on the processor's thread, so it must not
    block.
    """
    require_transactional_id(context, AclOperation.WRITE, request.transactional_id)
    broker.cluster.check_coordinates(request.transactional_id)
    require_group(context, AclOperation.READ, request.group_id)

    def reply(error: ErrorCode) -> None:
        if error is ErrorCode.PRODUCER_FENCED and context.api_version < _FIRST_VERSION_WITH_FENCED:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        context.respond(AddOffsetsToTxnResponse(error_code=error))

    broker.transactions.add_partitions(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        [offsets_partition(request.group_id)],
        _CLIENT_VERSION,
        reply,
    )
    return context.later()
