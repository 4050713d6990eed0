"""What a client may do with topics is what its listener's authorizer says, not what the gateway's account may do."""

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
def test_operations_on_topics_are_the_clients_own(client, named):
    answer = client.call(DescribeTopicPartitionsRequest([TopicRequest(name) for name in named]), 0)
    found = {topic.name: (topic.error_code, topic.topic_authorized_operations) for topic in answer.topics}
    assert found.pop("open") == (0, MAY)
    assert {name: code for name, (code, _) in found.items()} == ({"closed": DENIED} if "closed" in named else {})
    wanted = MetadataRequest([MetadataRequestTopic(name="open")], include_topic_authorized_operations=True)
    (topic,) = client.call(wanted, 12).topics
    assert topic.topic_authorized_operations == MAY
