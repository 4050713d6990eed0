"""ShareFetch, versions 1 and 2 (KIP-932).

Acquires records for a member from the partitions of its share session, and acknowledges records of earlier responses.
Waits in the purgatory until a record can be acquired, at most `max_wait_ms`. Answered when the acknowledgements are
durable. Follows `KafkaApis.handleShareFetchRequest` and `SharePartitionManager`.

- Records are acquired in whole batches until there are `max_records`; with `share_acquire_mode` 1 (v2) never more.
- Epoch 0 begins a session; if there are too many: SHARE_SESSION_LIMIT_REACHED; acknowledgements with epoch 0:
  INVALID_REQUEST. Epoch -1 ends the session and releases the acquired records. Other epochs continue it. No such
  session: SHARE_SESSION_NOT_FOUND; another epoch than expected: INVALID_SHARE_SESSION_EPOCH.
- `is_renew_ack` (v2) extends locks and fetches nothing; limits other than 0: INVALID_REQUEST.
- Acknowledgements of records that the member has not acquired: INVALID_RECORD_STATE or INVALID_REQUEST for the
  partition, and none of them takes effect.
- A group that does not exist, is of another type, or is deleted meanwhile: GROUP_ID_NOT_FOUND for each partition, and
  the session ends.
- A partition that another node leads: NOT_LEADER_OR_FOLLOWER, with the leader, its epoch and its address.
- With `share.version` 0: UNSUPPORTED_VERSION.

Authorization: READ on the group and on each topic.

Deviations: a request is answered as soon as there is a record, without waiting for `min_bytes`. A record that was
delivered often is delivered with others; Kafka delivers it alone.
"""

from __future__ import annotations

from klamm import ErrorCode, KafkaError, Pending, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages import share_fetch
from klamm.wire.messages.share_fetch import (
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from klamm_broker.configs.group_config_keys import SHARE_RECORD_LOCK_DURATION
from klamm_broker.groups.requests import MAX_MEMBER_ID_CHARS
from klamm_broker.handlers.countdown import call_after
from klamm_broker.handlers.k76_share_group_heartbeat import require_share_groups
from klamm_broker.limits.owners import owner_of
from klamm_broker.security.authorization import require_group
from klamm_broker.services import BrokerServices
from klamm_broker.share.acknowledging import AcknowledgedPartition, acknowledge, name_leaders
from klamm_broker.share.fetching import DelayedShareFetch, PendingShareFetch
from klamm_broker.share.live_partition import Outcome
from klamm_broker.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, SessionKey, ShareSession, TopicPartition


def fetch_shared(broker: BrokerServices, request: ShareFetchRequest, context: RequestContext) -> Pending:
    """Acknowledge and acquire. Runs on a request handler's thread. Raises KafkaError for the whole request."""
    require_share_groups(broker)
    group_id, member_id = request.group_id or "", request.member_id or ""
    require_group(context, AclOperation.READ, group_id)
    acknowledged = [
        AcknowledgedPartition(topic.topic_id, partition.partition_index, partition.acknowledgement_batches)
        for topic in request.topics
        for partition in topic.partitions
        if partition.acknowledgement_batches
    ]
    session = _session(
        broker, request, context, SessionKey(group_id, member_id, broker.cluster.node_id), bool(acknowledged)
    )
    outcomes: dict[TopicPartition, Outcome] = {}
    fetched: dict[TopicPartition, PartitionData] = {}
    is_final = request.share_session_epoch == FINAL_EPOCH

    def answer() -> None:
        # A session whose group does not exist would count towards the limit for all sessions.
        if is_final or not broker.groups.shares.exists(group_id):
            broker.shares.sessions.end(session.key)
        lock_ms = broker.group_configs.number(group_id, SHARE_RECORD_LOCK_DURATION)
        response = ShareFetchResponse(acquisition_lock_timeout_ms=lock_ms, responses=_topics(fetched, outcomes))
        name_leaders(share_fetch, response, broker, context)
        context.respond(response)

    done = call_after(2, answer)

    def acknowledged_all(found: dict[TopicPartition, Outcome]) -> None:
        outcomes.update(found)
        done()

    def fetched_all(found: dict[TopicPartition, PartitionData]) -> None:
        fetched.update(found)
        done()

    acknowledge(broker, context, session.key, acknowledged, acknowledged_all, may_renew=request.is_renew_ack)
    if is_final or request.is_renew_ack:
        fetched_all({})
    else:
        fetch = PendingShareFetch(broker, request, context, session)
        delayed = DelayedShareFetch(fetch, max(0, request.max_wait_ms), fetched_all, broker.run_later)
        if fetch.refused or request.max_wait_ms <= 0:
            delayed.force_complete()
        else:
            broker.fetch_purgatory.try_complete_else_watch(delayed, delayed.keys)
    return context.later()


def _session(
    broker: BrokerServices, request: ShareFetchRequest, context: RequestContext, key: SessionKey, acknowledges: bool
) -> ShareSession:
    if not key.group_id or not 0 < len(key.member_id) <= MAX_MEMBER_ID_CHARS:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.is_renew_ack and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    wanted = [(topic.topic_id, each.partition_index) for topic in request.topics for each in topic.partitions]
    sessions = broker.shares.sessions
    if request.share_session_epoch == FINAL_EPOCH:
        return sessions.final(key)
    if request.share_session_epoch == INITIAL_EPOCH:
        if acknowledges:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return sessions.begin(key, context.connection.connection_id, wanted, owner_of(context))
    forgotten = [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions]
    return sessions.resume(key, request.share_session_epoch, wanted, forgotten)


def _topics(
    fetched: dict[TopicPartition, PartitionData], outcomes: dict[TopicPartition, Outcome]
) -> list[ShareFetchableTopicResponse]:
    for place, outcome in outcomes.items():
        data = fetched.setdefault(place, PartitionData(place[1]))
        data.acknowledge_error_code, data.acknowledge_error_message = outcome.error_code, outcome.message
    topics: dict[bytes, ShareFetchableTopicResponse] = {}
    for (topic_id, _), data in fetched.items():
        topics.setdefault(topic_id, ShareFetchableTopicResponse(topic_id)).partitions.append(data)
    return list(topics.values())
