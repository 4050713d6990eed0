"""The audit knows for every API if it changes state, and for every change which resources are changed."""

from pathlib import Path

import pytest

from klamm.wire.api_keys import ApiKey
from klamm.wire.messages import consumer_group_heartbeat, share_group_heartbeat
from klamm_spark.requests.state_changes import ADMINISTRATIVE, STATE_CHANGES, is_change, markdown_table

ROOT = Path(__file__).resolve().parents[3]
K = ApiKey
MOVE_DATA = {K.PRODUCE, K.FETCH, K.SHARE_FETCH, K.SHARE_ACKNOWLEDGE}
CHANGE_NOTHING = {
    # A topic that Metadata creates has its own administrative event, and logins have authentication events.
    K.METADATA, K.SASL_HANDSHAKE, K.SASL_AUTHENTICATE,
    K.API_VERSIONS, K.BROKER_HEARTBEAT, K.CONSUMER_GROUP_DESCRIBE, K.DESCRIBE_ACLS, K.DESCRIBE_CLIENT_QUOTAS,
    K.DESCRIBE_CLUSTER, K.DESCRIBE_CONFIGS, K.DESCRIBE_DELEGATION_TOKEN, K.DESCRIBE_GROUPS, K.DESCRIBE_LOG_DIRS,
    K.DESCRIBE_PRODUCERS, K.DESCRIBE_QUORUM, K.DESCRIBE_SHARE_GROUP_OFFSETS, K.DESCRIBE_TOPIC_PARTITIONS,
    K.DESCRIBE_TRANSACTIONS, K.DESCRIBE_USER_SCRAM_CREDENTIALS, K.FETCH_SNAPSHOT, K.FIND_COORDINATOR,
    K.GET_TELEMETRY_SUBSCRIPTIONS, K.HEARTBEAT, K.LIST_CONFIG_RESOURCES, K.LIST_GROUPS, K.LIST_OFFSETS,
    K.LIST_PARTITION_REASSIGNMENTS, K.LIST_TRANSACTIONS, K.OFFSET_FETCH, K.OFFSET_FOR_LEADER_EPOCH, K.PUSH_TELEMETRY,
    K.READ_SHARE_GROUP_STATE, K.READ_SHARE_GROUP_STATE_SUMMARY, K.SHARE_GROUP_DESCRIBE, K.STREAMS_GROUP_DESCRIBE,
}  # fmt: skip
CHANGING_WORDS = (
    "ADD", "ALLOCATE", "ALTER", "ASSIGN", "COMMIT", "CREATE", "DELETE", "ELECT", "END", "EXPIRE", "INIT", "JOIN",
    "LEAVE", "REGISTRATION", "REMOVE", "RENEW", "UNREGISTER", "UPDATE", "WRITE",
)  # fmt: skip


def test_every_api_is_known():
    known = sorted([*STATE_CHANGES, *MOVE_DATA, *CHANGE_NOTHING])
    assert known == sorted(ApiKey), "a new API needs a description in klamm_spark.requests, or a place in this test"


def test_apis_with_the_name_of_a_change_are_changes():
    named = {key for key in ApiKey if not set(key.name.split("_")).isdisjoint(CHANGING_WORDS)}
    assert [key.name for key in named if not is_change(key, None)] == []


def test_administrative_changes_exclude_those_of_running_clients():
    assert {K.CREATE_TOPICS, K.DELETE_GROUPS, K.OFFSET_DELETE, K.UNREGISTER_BROKER} <= ADMINISTRATIVE
    assert ADMINISTRATIVE.isdisjoint({K.OFFSET_COMMIT, K.JOIN_GROUP, K.END_TXN, K.ALTER_PARTITION, K.VOTE})


def test_the_page_lists_every_change():
    assert markdown_table() in (ROOT / "docs" / "audit" / "reference.md").read_text()


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (consumer_group_heartbeat.ConsumerGroupHeartbeatRequest("g", "m", 0), True),
        (consumer_group_heartbeat.ConsumerGroupHeartbeatRequest("g", "m", -1), True),
        (consumer_group_heartbeat.ConsumerGroupHeartbeatRequest("g", "m", -2), True),
        (consumer_group_heartbeat.ConsumerGroupHeartbeatRequest("g", "m", 3), False),
        (consumer_group_heartbeat.ConsumerGroupHeartbeatRequest("g", "m", 3, subscribed_topic_names=["t"]), True),
        (consumer_group_heartbeat.ConsumerGroupHeartbeatRequest("g", "m", 3, subscribed_topic_regex="t.*"), True),
        (share_group_heartbeat.ShareGroupHeartbeatRequest("g", "m", 3), False),
        (share_group_heartbeat.ShareGroupHeartbeatRequest("g", "m", -1), True),
        (None, True),
    ],
)
def test_a_heartbeat_that_joins_leaves_or_subscribes_is_a_change(message, expected):
    key = ApiKey.CONSUMER_GROUP_HEARTBEAT if message is None else message.API_KEY
    assert is_change(key, message) is expected
