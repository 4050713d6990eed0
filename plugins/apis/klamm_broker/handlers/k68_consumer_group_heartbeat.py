"""ConsumerGroupHeartbeat, versions 0 and 1 (KIP-848).

With epoch 0 a member joins, with -1 it leaves, and with -2 a static member leaves temporarily. With its own epoch it
stays in the group, reports its partitions, and gets the assignment that the server computes. Answered once the changes
are durable. Follows
`KafkaApis.handleConsumerGroupHeartbeat` and `GroupMetadataManager.consumerGroupHeartbeat`.

- A field that does not fit the epoch: INVALID_REQUEST. From v1 on the client chooses its member id.
- A `SubscribedTopicRegex` (v1) that RE2 does not accept: INVALID_REGULAR_EXPRESSION.
- A server assignor that is not in `group.consumer.assignors`: UNSUPPORTED_ASSIGNOR.
- A full group: GROUP_MAX_SIZE_REACHED; a group that does not exist or is of another type: GROUP_ID_NOT_FOUND.
- An unknown member: UNKNOWN_MEMBER_ID; another epoch than the member's: FENCED_MEMBER_EPOCH. The client then gives up
  its partitions and joins again.
- A join with an instance id whose member has not left: UNRELEASED_INSTANCE_ID. A heartbeat with the instance id of
  another member: FENCED_INSTANCE_ID.
- Without `consumer` in `group.coordinator.rebalance.protocols`, or with `group.version` 0: UNSUPPORTED_VERSION.
- A change that cannot be written: NOT_COORDINATOR, so that the client looks up the coordinator and retries.

Authorization: READ on the group, DESCRIBE on each named topic: TOPIC_AUTHORIZATION_FAILED. An
expression matches only topics that the client may DESCRIBE.
"""

from __future__ import annotations

from collections.abc import Iterable

from klamm import ErrorCode, KafkaError, Pending, RequestContext
from klamm.acl import AclOperation, ResourceType
from klamm.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
    ResponseTopicPartitions,
)
from klamm_broker.features import GROUP_VERSION
from klamm_broker.groups.requests import ConsumerHeartbeat, EpochHeartbeatResult
from klamm_broker.handlers.epoch_groups import check_heartbeat, heartbeat_response
from klamm_broker.limits.owners import owner_of
from klamm_broker.security.authorization import shows
from klamm_broker.services import BrokerServices

_FIRST_VERSION_WHOSE_CLIENTS_MAKE_MEMBER_IDS = 1


def keep_consumer(broker: BrokerServices, request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> Pending:
    """Serve a member's heartbeat. Raises KafkaError. Runs on a request handler's thread."""
    require_protocol(broker)
    check_heartbeat(broker, context, request.group_id, request.subscribed_topic_names or ())

    def reply(result: EpochHeartbeatResult) -> None:
        classes = ConsumerGroupHeartbeatResponse, Assignment, ResponseTopicPartitions
        context.respond(heartbeat_response(result, *classes))

    broker.groups.consumers.heartbeat(
        ConsumerHeartbeat(
            group_id=request.group_id,
            member_id=request.member_id,
            epoch=request.member_epoch,
            client_id=context.client_id or "",
            client_host=f"/{context.client_address.host}",
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topics=request.subscribed_topic_names,
            regex=request.subscribed_topic_regex,
            assignor=request.server_assignor,
            owned=None if request.topic_partitions is None else _by_topic(request.topic_partitions),
            generates_member_id=context.api_version < _FIRST_VERSION_WHOSE_CLIENTS_MAKE_MEMBER_IDS,
            owner=owner_of(context),
            may_describe=lambda name: shows(context, AclOperation.DESCRIBE, ResourceType.TOPIC, name),
        ),
        reply,
    )
    return context.later()


def require_protocol(broker: BrokerServices) -> None:
    """Raise KafkaError(UNSUPPORTED_VERSION) if the consumer protocol is switched off."""
    protocols = broker.settings.group_coordinator_rebalance_protocols
    if "consumer" not in protocols or not broker.features.level(GROUP_VERSION):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _by_topic(owned: Iterable[RequestTopicPartitions]) -> dict[bytes, frozenset[int]]:
    found: dict[bytes, frozenset[int]] = {}
    for each in owned:
        found[each.topic_id] = found.get(each.topic_id, frozenset()) | frozenset(each.partitions)
    return found
