"""Tests of authorizers over real sockets: their rules, their failures, and changes of rules on open connections."""

import pytest

from klamm import ErrorCode, Provider, hookimpl
from klamm.acl import Authorizer
from klamm.server.serving import RELOAD_DONE, reload
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.create_acls import AclCreation, CreateAclsRequest
from klamm.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

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
    """Return `topics(server)`, which returns the names of the topics that a client sees."""

    def visible(server):
        with RawClient(server.address(), **client_options) as client:
            return [topic.name for topic in client.call(MetadataRequest(None), 12).topics]

    return visible


def test_rules_of_the_configuration_decide_which_topics_are_listed(on_channel, topics):
    with EmbeddedServer(["listeners.default.authorizer=static", RULES, *on_channel()]) as server:
        for name in ("seen", "unseen"):
            server.api_set().topics.create(name, 1, {})
        assert topics(server) == ["seen"]


def test_an_authorizer_that_raises_denies_all(on_channel, topics, caplog):
    with EmbeddedServer(["listeners.default.authorizer=failing", *on_channel()], plugins=[Plugin()]) as server:
        server.api_set().topics.create("seen", 1, {})
        assert topics(server) == []
    assert "out of order" in caplog.text


def test_a_new_acl_applies_to_the_next_request(on_channel, topics, connect):
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


class Busy:
    """A connection that stays open.

    It uses the topic `seen` by Fetch in a session, by Metadata, and by OffsetCommit.
    """

    def __init__(self, client):
        self.client = client
        self.epoch = 0
        self.session = 0

    def fetch(self):
        """Fetch within the session. Only the first request names the topic."""
        topics = [] if self.epoch else [FetchTopic("seen", partitions=[FetchPartition(0, partition_max_bytes=1000)])]
        request = FetchRequest(max_wait_ms=0, session_id=self.session, session_epoch=self.epoch, topics=topics)
        answer = self.client.call(request, 11)
        assert answer.error_code == 0
        self.session, self.epoch = answer.session_id, self.epoch + 1
        return {partition.error_code for topic in answer.responses for partition in topic.partitions}

    def metadata(self):
        return {
            topic.error_code
            for topic in self.client.call(MetadataRequest([MetadataRequestTopic(name="seen")]), 9).topics
        }

    def commit(self):
        partitions = [OffsetCommitRequestPartition(0, 1)]
        request = OffsetCommitRequest("group", topics=[OffsetCommitRequestTopic("seen", partitions=partitions)])
        return {each.error_code for topic in self.client.call(request, 7).topics for each in topic.partitions}


def test_changed_acls_apply_to_the_next_request_of_open_connections(on_channel, connect):
    settings = [
        "listeners.default.authorizer=acl",
        'listeners.default.acl.super_users=["User:root"]',
        "listeners.default.acl.allow_everyone_if_no_acl_found=true",
        *on_channel(),
    ]
    allowed, denied = {ErrorCode.NONE}, {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    with EmbeddedServer(settings) as server:
        server.api_set().topics.create("seen", 1, {})
        admin, busy = connect(server), Busy(connect(server))
        assert busy.fetch() == busy.metadata() == busy.commit() == allowed
        for _ in range(3):
            denial = AclCreation(2, "seen", 3, "User:*", "*", 2, 2)
            assert admin.call(CreateAclsRequest([denial]), 3).results[0].error_code == ErrorCode.NONE
            assert busy.fetch() == busy.metadata() == busy.commit() == denied
            every = DeleteAclsFilter(2, "seen", 3, None, None, 1, 1)
            (result,) = admin.call(DeleteAclsRequest([every]), 3).filter_results
            assert len(result.matching_acls) == 1
            assert busy.metadata() == busy.commit() == allowed
            assert busy.fetch() <= allowed, "what has not changed in a session is not named again"


@pytest.mark.parametrize(
    ("authorizer", "opens", "wrong", "place"),
    [
        ("acl", 'super_users = ["User:ANONYMOUS"]', 'super_users = ["ANONYMOUS"]', "super_users"),
        ("acl", "allow_everyone_if_no_acl_found = true", "allow_everyone_if_no_acl_found = 1", "allow_everyone_if"),
        ("static", 'super_users = ["User:ANONYMOUS"]', 'super_users = ["ANONYMOUS"]', "super_users"),
        ("static", 'rules = ["allow User:* ALL topic:se*"]', 'rules = ["alow User:* ALL topic:se*"]', "rules"),
    ],
)
def test_changed_settings_apply_to_the_next_request_of_open_connections(
    tmp_path, on_channel, connect, authorizer, opens, wrong, place
):
    file = tmp_path / "klamm.toml"

    def plan_with(line):
        file.write_text(
            f'[listeners.default]\nbind = "127.0.0.1:0"\nauthorizer = "{authorizer}"\n\n[{authorizer}]\n{line}\n'
        )
        return EmbeddedServer(on_channel(), file=file).plan

    allowed, denied = {ErrorCode.NONE}, {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    plan_with("")
    with EmbeddedServer(on_channel(), file=file) as server:
        server.api_set().topics.create("seen", 1, {})
        busy = Busy(connect(server))
        assert busy.metadata() == denied
        key, *_ = opens.split()
        taken = [f"reload: [listeners.default.{authorizer}] {key} has changed and is applied", RELOAD_DONE]
        for _ in range(3):
            assert reload(server.server, lambda: plan_with(opens)) == taken
            assert busy.metadata() == allowed
            (said,) = reload(server.server, lambda: plan_with(wrong))
            assert said.startswith(f"reload: nothing changed: {file}:6:")
            assert f"{authorizer}.{place}" in said
            assert busy.metadata() == allowed, "a wrong value leaves everything as it was"
            assert reload(server.server, lambda: plan_with("")) == taken
            assert busy.metadata() == denied
