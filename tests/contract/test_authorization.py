"""Authorizers over real sockets: each listener has its own, and one that fails lets nobody through."""

from klamm import Authorizer, ErrorCode, Provider, hookimpl
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


def topics(server):
    with RawClient(server.address()) as client:
        return [topic.name for topic in client.call(MetadataRequest(None), 12).topics]


def test_rules_of_the_configuration():
    with EmbeddedServer(["listeners.default.authorizer=static", RULES]) as server:
        for name in ("seen", "unseen"):
            server.api_set().create_topic(name)
        assert topics(server) == ["seen"]


def test_an_authorizer_that_fails_denies(caplog):
    with EmbeddedServer(["listeners.default.authorizer=failing"], plugins=[Plugin()]) as server:
        server.api_set().create_topic("seen")
        assert topics(server) == []
    assert "out of order" in caplog.text


def test_acls_take_effect_at_once_and_answers_are_not_kept():
    settings = [
        "listeners.default.authorizer=acl",
        'listeners.default.acl.super_users=["User:root"]',
        "listeners.default.acl.allow_everyone_if_no_acl_found=true",
    ]
    with EmbeddedServer(settings) as server, RawClient(server.address()) as client:
        server.api_set().create_topic("seen")
        assert topics(server) == ["seen"]
        denial = AclCreation(2, "seen", 3, "User:*", "*", 2, 2)
        assert client.call(CreateAclsRequest([denial]), 3).results[0].error_code == ErrorCode.NONE
        assert topics(server) == []
