"""A gateway records each decision of its authorizer together with the rule that decided, as a broker does."""

from __future__ import annotations

from typing import Any

import pytest

from klamm import Address, ConnectionContext, KafkaError, ListenerContext, RequestContext
from klamm.wire.api_keys import ApiKey
from klamm.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponseTopic,
)
from klamm_authorizers.authorizer_settings import StaticSettings
from klamm_gateway.authorization.checks import Forwarded
from klamm_gateway.authorization.rules import RULES, authorize
from klamm_gateway.layout import Cluster
from tests.unit.broker.test_recorded_decisions import EVERY, NO_DECISIONS, Remembering, assert_named

TOPIC_ID = b"the topic's id!!"
ANSWERS = {
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: DescribeShareGroupOffsetsResponse(
        groups=[
            DescribeShareGroupOffsetsResponseGroup("sh", topics=[DescribeShareGroupOffsetsResponseTopic("t")]),
        ]
    )
}
"""Responses of a node by API. The gateway decides about the topics in them, in addition to those in the request."""
OTHER_RULES = {
    # A transactional id requires its own right, whatever topics the batches have.
    "Produce outside of the transaction": ("allow User:* WRITE transactional_id:x", "allow User:* WRITE topic:t"),
    # At a broker this case uses the right on the cluster. Here it uses the right on the topic.
    "DeleteTopics by the cluster": ("allow User:* DELETE topic:t",),
    # Only brokers send these requests. The gateway requires this right for every API without a rule of its own.
    "WriteTxnMarkers": ("allow User:* ALTER cluster",),
}
# The rules that a case needs although its recorded decisions do not name them.
NO_DECISIONS_HERE = {
    **NO_DECISIONS,
    # The response has a bit for each right. To set the bits, the gateway asks the authorizer about each right.
    "DescribeCluster": "allow User:* DESCRIBE cluster",
    # The gateway does not know if the topic exists. It asks for the right to create the topic, and the cluster records
    # the creation.
    "Metadata that creates": "allow User:* CREATE topic:made",
}


@pytest.mark.parametrize("name", EVERY)
def test_a_gateway_records_each_decision_with_the_rule_that_decided(name: str) -> None:
    request, version, rules = EVERY[name]
    request = request(TOPIC_ID) if callable(request) else request
    if request.API_KEY not in RULES:
        rules = ("allow User:* ALTER cluster",)
    rules = OTHER_RULES.get(name, rules)
    authorizer = Remembering(StaticSettings(rules=rules))
    here = Address("127.0.0.1", 9092)
    connection = ConnectionContext("c", ListenerContext("front", here, here, authorizer=authorizer), here, here)
    context = RequestContext(connection, None, request.API_KEY, version, 1, "client")  # type: ignore[arg-type]
    cluster = Cluster()
    cluster.note_topic(TOPIC_ID, "t")
    verdict: Any = None
    try:
        verdict = authorize(request, context, cluster)
    except KafkaError:
        pytest.fail("it is denied with the rules that it needs")
    assert isinstance(verdict, Forwarded)
    if request.API_KEY in ANSWERS:
        assert verdict.change is not None
        verdict.change(ANSWERS[request.API_KEY])
    assert_named([context], rules, NO_DECISIONS_HERE.get(name))
