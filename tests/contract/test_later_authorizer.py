"""Tests of an authorizer that decides later, over real sockets.

Waiting requests occupy no thread, keep their order, and wait for a limited time.
"""

import threading

import pytest

from klamm import ErrorCode, Provider, hookimpl
from klamm.acl import AclOperation, LaterAuthorizer, LaterSettings, ResourceType
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.api_keys import ApiKey
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.waiting import wait_until

PATIENCE_S = 60


class Policy(LaterAuthorizer):
    """An authorizer that allows everything on topics that begin with `open`.

    Its decisions wait while `go_on` is cleared.
    """

    go_on = threading.Event()
    waiting = 0

    def permitted(self, principal, host, resource_type, resource_name):
        if resource_type is ResourceType.TOPIC:
            type(self).waiting += 1
            Policy.go_on.wait(PATIENCE_S)
            if resource_name == "open-broken":
                raise ConnectionError("the engine does not answer")
        return list(AclOperation) if resource_name.startswith("open") else []


class Plugin:
    @hookimpl
    def klamm_authorizers(self):
        yield Provider("policy", f"{__name__}:Policy", f"{LaterSettings.__module__}:LaterSettings")


@pytest.fixture
def server(request):
    Policy.go_on.set()
    Policy.waiting = 0
    settings = ["listeners.default.authorizer=policy", *getattr(request, "param", ())]
    try:
        with EmbeddedServer(settings, plugins=[Plugin()]) as made:
            for name in ("open-1", "open-2", "closed", "open-broken"):
                made.api_set().topics.create(name, 1, {})
            yield made
    finally:
        Policy.go_on.set()


def described(*names):
    return MetadataRequest([MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False)


def errors(response):
    return {topic.name: topic.error_code for topic in response.topics}


SHORT = pytest.mark.parametrize("server", [["listeners.default.policy.timeout_ms=50"]], indirect=True)
POOLED = pytest.mark.parametrize(
    "server", [[], ["listeners.default.dispatch=pool"], ["listeners.default.dispatch=inline"]], indirect=True
)
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@POOLED
def test_the_first_request_gets_the_decisions_about_what_it_names(server):
    with RawClient(server.address()) as client:
        answer = client.call(described("open-1", "closed", "open-broken"), 9)
    assert errors(answer) == {"open-1": 0, "closed": DENIED, "open-broken": DENIED}


def test_the_authorizer_gets_names_for_topic_ids(server):
    topic_id = server.api_set().topics.get("open-1").id
    fetch = FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic_id=topic_id, partitions=[FetchPartition(0)])])
    with RawClient(server.address()) as client:
        answer = client.call(fetch, 16)
    assert [one.error_code for topic in answer.responses for one in topic.partitions] == [0]


def test_responses_keep_their_order_and_other_connections_are_served(server):
    Policy.go_on.clear()
    with RawClient(server.address()) as slow, RawClient(server.address()) as quick:
        first, second = slow.send(described("open-1"), 9), slow.send(ApiVersionsRequest(), 0)
        for number in range(50):
            # There are more requests than handler threads, and none of them occupies a thread.
            assert quick.call(ApiVersionsRequest(), 0).error_code == 0, number
        Policy.go_on.set()
        assert errors(slow.receive(ApiKey.METADATA, 9, first)) == {"open-1": 0}
        assert slow.receive(ApiKey.API_VERSIONS, 0, second).error_code == 0


def test_many_requests_may_wait_for_decisions_at_once(server):
    Policy.go_on.clear()
    clients = [RawClient(server.address()) for _ in range(40)]
    try:
        sent = [client.send(described("open-1"), 9) for client in clients]
        wait_until(lambda: Policy.waiting)
        Policy.go_on.set()
        for client, number in zip(clients, sent, strict=True):
            assert errors(client.receive(ApiKey.METADATA, 9, number)) == {"open-1": 0}
    finally:
        for client in clients:
            client.close()


@SHORT
def test_a_request_is_denied_if_its_decision_comes_too_late(server):
    Policy.go_on.clear()
    with RawClient(server.address()) as client:
        assert errors(client.call(described("open-1"), 9)) == {"open-1": DENIED}


def test_nothing_remains_of_a_connection_that_is_lost_while_it_waits(server):
    Policy.go_on.clear()
    with RawClient(server.address()) as client:
        client.send(described("open-1"), 9)
        wait_until(lambda: Policy.waiting)
    Policy.go_on.set()
    with RawClient(server.address()) as client:
        assert errors(client.call(described("open-1"), 9)) == {"open-1": 0}


def test_a_server_can_stop_while_requests_wait_for_decisions(server):
    Policy.go_on.clear()
    with RawClient(server.address()) as client:
        client.send(described("open-1"), 9)
        wait_until(lambda: Policy.waiting)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        assert client.at_end()
        Policy.go_on.set()
        stopping.join(PATIENCE_S)
        assert not stopping.is_alive()
