"""Every API is classified, and every state change says what it changes."""

from pathlib import Path

import pytest

from klamm.wire.api_keys import ApiKey
from klamm.wire.messages import consumer_group_heartbeat, share_group_heartbeat
from klamm_spark.requests.api_classes import ADMINISTRATIVE, API_CLASSES, CHANGING, ApiClass, is_change
from klamm_spark.requests.state_changes import STATE_CHANGES, markdown_table

ROOT = Path(__file__).resolve().parents[3]
CHANGING_WORDS = (
    "ADD", "ALLOCATE", "ALTER", "ASSIGN", "COMMIT", "CREATE", "DELETE", "ELECT", "END", "EXPIRE", "INIT", "JOIN",
    "LEAVE", "REGISTRATION", "REMOVE", "RENEW", "UNREGISTER", "UPDATE", "WRITE",
)  # fmt: skip


def test_every_api_is_classified():
    assert sorted(API_CLASSES) == sorted(ApiKey), "a new API needs a line in klamm_spark.requests.api_classes"


def test_what_is_named_like_a_change_is_one():
    named = {key for key in ApiKey if not set(key.name.split("_")).isdisjoint(CHANGING_WORDS)}
    assert [key.name for key in named if API_CLASSES[key] is not ApiClass.CHANGE] == []


def test_every_change_has_a_description():
    assert {int(key) for key in STATE_CHANGES} == CHANGING
    assert ADMINISTRATIVE <= CHANGING


def test_the_page_shows_every_change():
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
