"""ShareAcknowledge, versions 1 and 2 (KIP-932).

Acknowledges records that a member has acquired: accepts, releases or rejects them, or (v2, `is_renew_ack`) extends its
locks. Answered when the acknowledgements are durable. Follows `KafkaApis.handleShareAcknowledgeRequest`.

- The request continues a session that ShareFetch has started. No such session: SHARE_SESSION_NOT_FOUND; epoch 0, or
  another epoch than expected: INVALID_SHARE_SESSION_EPOCH. Epoch -1 ends the session and releases the records that are
  still acquired.
- In each partition, all acknowledgements take effect or none: INVALID_RECORD_STATE for records that the member has not
  acquired, INVALID_REQUEST for invalid offsets and types.
- A partition that another node leads: NOT_LEADER_OR_FOLLOWER, with the leader, its epoch and its address.
- With `share.version` 0: UNSUPPORTED_VERSION.

Authorization: READ on the group and on each topic.
"""

from __future__ import annotations

from klamm import ErrorCode, KafkaError, Pending, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages import share_acknowledge
from klamm.wire.messages.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from klamm_broker.configs.group_config_keys import SHARE_RECORD_LOCK_DURATION
from klamm_broker.groups.requests import MAX_MEMBER_ID_CHARS
from klamm_broker.handlers.k76_share_group_heartbeat import require_share_groups
from klamm_broker.security.authorization import require_group
from klamm_broker.services import BrokerServices
from klamm_broker.share.acknowledging import AcknowledgedPartition, acknowledge, name_leaders
from klamm_broker.share.live_partition import Outcome
from klamm_broker.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, SessionKey, TopicPartition


def acknowledge_shared(broker: BrokerServices, request: ShareAcknowledgeRequest, context: RequestContext) -> Pending:
    """Acknowledge. Raises KafkaError for errors of the whole request. Runs on a request handler's thread."""
    require_share_groups(broker)
    key = SessionKey(request.group_id or "", request.member_id or "", broker.cluster.node_id)
    require_group(context, AclOperation.READ, key.group_id)
    if not key.group_id or not 0 < len(key.member_id) <= MAX_MEMBER_ID_CHARS:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    epoch = request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    if epoch == FINAL_EPOCH:
        broker.shares.sessions.final(key)
    else:
        broker.shares.sessions.resume(key, epoch)

    def answer(outcomes: dict[TopicPartition, Outcome]) -> None:
        if epoch == FINAL_EPOCH:
            broker.shares.sessions.end(key)
        topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
        for (topic_id, index), outcome in outcomes.items():
            topics.setdefault(topic_id, ShareAcknowledgeTopicResponse(topic_id)).partitions.append(
                PartitionData(index, outcome.error_code, outcome.message)
            )
        lock_ms = broker.group_configs.number(key.group_id, SHARE_RECORD_LOCK_DURATION)
        response = ShareAcknowledgeResponse(acquisition_lock_timeout_ms=lock_ms, responses=list(topics.values()))
        name_leaders(share_acknowledge, response, broker, context)
        context.respond(response)

    acknowledge(
        broker,
        context,
        key,
        [
            AcknowledgedPartition(topic.topic_id, partition.partition_index, partition.acknowledgement_batches)
            for topic in request.topics
            for partition in topic.partitions
        ],
        answer,
        may_renew=request.is_renew_ack,
    )
    return context.later()
