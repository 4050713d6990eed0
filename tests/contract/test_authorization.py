"""Authorizers over real sockets: each listener has its own, and one that fails lets nobody through."""

import pytest

from klamm import ErrorCode, Provider, hookimpl
from klamm.acl import Authorizer
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.create_acls import AclCreation, CreateAclsRequest
from klamm.wire.messages.metadata import MetadataRequest

RULES = 'listeners.default.static.rules=["allow User:* DESCRIBE topic:seen"]'


class Failing(Authorizer):
    def authorize(self, context, operation, resource_type, resource_name, *, log_if_denied=True):
        raise RuntimeError("out of order")

    def authorize_by_resource_type(self, context, operation, resource_type):
        raise RuntimeError("out of order")


class Plugin:
    @hookimpl
    def klamm_authorizers(self):
        yield Provider("failing", "tests.contract.test_authorization:Failing")


@pytest.fixture
def topics(client_options):
    """`topics(server)` → the names that a client is told."""

    def told(server):
        with RawClient(server.address(), **client_options) as client:
            return [topic.name for topic in client.call(MetadataRequest(None), 12).topics]

    return told


def test_rules_of_the_configuration(on_channel, topics):
    with EmbeddedServer(["listeners.default.authorizer=static", RULES, *on_channel()]) as server:
        for name in ("seen", "unseen"):
            server.api_set().topics.create(name, 1, {})
        assert topics(server) == ["seen"]


def test_an_authorizer_that_fails_denies(on_channel, topics, caplog):
    with EmbeddedServer(["listeners.default.authorizer=failing", *on_channel()], plugins=[Plugin()]) as server:
        server.api_set().topics.create("seen", 1, {})
        assert topics(server) == []
    assert "out of order" in caplog.text


def test_acls_take_effect_at_once_and_answers_are_not_kept(on_channel, topics, connect):
    settings = [
        "listeners.default.authorizer=acl",
        'listeners.default.acl.super_users=["User:root"]',
        "listeners.default.acl.allow_everyone_if_no_acl_found=true",
        *on_channel(),
    ]
    with EmbeddedServer(settings) as server:
        client = connect(server)
        server.api_set().topics.create("seen", 1, {})
        assert topics(server) == ["seen"]
        denial = AclCreation(2, "seen", 3, "User:*", "*", 2, 2)
        assert client.call(CreateAclsRequest([denial]), 3).results[0].error_code == ErrorCode.NONE
        assert topics(server) == []
