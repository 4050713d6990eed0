"""A gateway shows a client the operations that its listener's authorizer allows, not those of the gateway's account."""

import pytest

from klamm.acl import AclOperation
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.contract.gateway_nodes import gateway
from tests.contract.test_gateway_authorization import DENIED, OPEN

MAY = sum(1 << operation for operation in (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE))


@pytest.fixture(scope="module")
def client():
    with EmbeddedServer() as broker:
        for name in ("open", "closed"):
            broker.create_topic(name)
        with gateway(broker.bootstrap, OPEN) as front, RawClient(front.address()) as connected:
            yield connected


@pytest.mark.parametrize("named", [(), ("open",), ("open", "closed")])
def test_metadata_shows_the_operations_that_the_client_may_do(client, named):
    answer = client.call(DescribeTopicPartitionsRequest([TopicRequest(name) for name in named]), 0)
    found = {topic.name: (topic.error_code, topic.topic_authorized_operations) for topic in answer.topics}
    assert found.pop("open") == (0, MAY)
    assert {name: code for name, (code, _) in found.items()} == ({"closed": DENIED} if "closed" in named else {})
    wanted = MetadataRequest([MetadataRequestTopic(name="open")], include_topic_authorized_operations=True)
    (topic,) = client.call(wanted, 12).topics
    assert topic.topic_authorized_operations == MAY
