"""ShareGroupHeartbeat, version 1 (KIP-932).

A member joins (epoch 0), stays in and leaves (-1) a share group, and gets the partitions that it shares with others.
Answered once the changes are durable. Follows `GroupMetadataManager.shareGroupHeartbeat`.

- A field that does not fit the epoch: INVALID_REQUEST.
- A full group: GROUP_MAX_SIZE_REACHED; a group that does not exist or is of another type: GROUP_ID_NOT_FOUND.
- An unknown member: UNKNOWN_MEMBER_ID; another epoch than the member's: FENCED_MEMBER_EPOCH. The client then gives up
  its partitions and joins again.
- With `share.version` 0: UNSUPPORTED_VERSION.
- A change that cannot be written: NOT_COORDINATOR, so that the client looks up the coordinator and retries.

Authorization: READ on the group, DESCRIBE on each named topic: TOPIC_AUTHORIZATION_FAILED.
"""

from __future__ import annotations

from klamm import ErrorCode, KafkaError, Pending, RequestContext
from klamm.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from klamm_broker.features import SHARE_VERSION
from klamm_broker.groups.requests import EpochHeartbeatResult, ShareHeartbeat
from klamm_broker.handlers.epoch_groups import check_heartbeat, heartbeat_response
from klamm_broker.limits.owners import owner_of
from klamm_broker.services import BrokerServices
from klamm_broker.topics.names import SHARE_GROUP_STATE


def keep_share_member(broker: BrokerServices, request: ShareGroupHeartbeatRequest, context: RequestContext) -> Pending:
    """Serve a member's heartbeat. Raises KafkaError. Runs on a request handler's thread."""
    require_share_groups(broker)
    check_heartbeat(broker, context, request.group_id, request.subscribed_topic_names or ())

    def reply(result: EpochHeartbeatResult) -> None:
        if result.assignment and broker.topics.get(SHARE_GROUP_STATE) is None:
            broker.auto_creation.require_internal(SHARE_GROUP_STATE)
        context.respond(heartbeat_response(result, ShareGroupHeartbeatResponse, Assignment, TopicPartitions))

    broker.groups.shares.heartbeat(
        ShareHeartbeat(
            group_id=request.group_id,
            member_id=request.member_id,
            epoch=request.member_epoch,
            client_id=context.client_id or "",
            client_host=f"/{context.client_address.host}",
            rack_id=request.rack_id,
            topics=request.subscribed_topic_names,
            owner=owner_of(context),
        ),
        reply,
    )
    return context.later()


def require_share_groups(broker: BrokerServices) -> None:
    """Raise KafkaError(UNSUPPORTED_VERSION) if share groups are switched off."""
    if not broker.features.level(SHARE_VERSION):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
