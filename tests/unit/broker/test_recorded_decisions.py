"""Each decision about a request is recorded, and names the rule that decided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klamm import KafkaPrincipal, RequestContext
from klamm.acl import Verdict
from klamm.wire.api_keys import ApiKey, load, spec_of
from klamm.wire.messages.create_acls import CreateAclsRequest
from klamm.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from klamm.wire.messages.delete_acls import DeleteAclsRequest
from klamm.wire.messages.describe_acls import DescribeAclsRequest
from klamm.wire.messages.describe_cluster import DescribeClusterRequest
from klamm.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from klamm.wire.messages.init_producer_id import InitProducerIdRequest
from klamm.wire.messages.list_groups import ListGroupsRequest
from klamm_authorizers.authorizer_settings import StaticSettings
from klamm_authorizers.rules import parse_rule
from klamm_authorizers.static import StaticAuthorizer
from tests.unit.broker import share_requests as share
from tests.unit.broker import transactional_requests as transactional
from tests.unit.broker.broker_harness import BrokerHarness
from tests.unit.broker.test_authorization import ASKED

READS_SHARED = ("allow User:* READ group:sh", "allow User:* READ topic:t")
EVERY: dict[str, tuple[Any, int, tuple[str, ...]]] = {
    **{name: (asked.request, asked.version, asked.rules) for name, asked in ASKED.items()},
    "ListGroups": (ListGroupsRequest(), 4, ("allow User:* DESCRIBE cluster",)),
    "DescribeAcls": (DescribeAclsRequest(1, None, 1, None, None, 1, 1), 3, ("allow User:* DESCRIBE cluster",)),
    "CreateAcls": (CreateAclsRequest([]), 3, ("allow User:* ALTER cluster",)),
    "DeleteAcls": (DeleteAclsRequest([]), 3, ("allow User:* ALTER cluster",)),
    "ListTransactions": (transactional.LIST, 2, ("allow User:* DESCRIBE transactional_id:x",)),
    "DescribeCluster": (
        DescribeClusterRequest(include_cluster_authorized_operations=True),
        1,
        ("allow User:* DESCRIBE cluster",),
    ),
    "CreateDelegationToken": (
        CreateDelegationTokenRequest("User", "ada"),
        3,
        ("allow User:* CREATE_TOKENS user:User:ada",),
    ),
    "DescribeDelegationToken": (
        DescribeDelegationTokenRequest(None),
        3,
        ("allow User:* DESCRIBE_TOKENS user:User:ada",),
    ),
    "ShareFetch": (lambda topic_id: share.of_session(topic_id)["ShareFetch"], 1, READS_SHARED),
    "ShareAcknowledge": (lambda topic_id: share.of_session(topic_id)["ShareAcknowledge"], 1, READS_SHARED),
}
"""Request (or a function of the topic's id), version and rules, for each API that asks the authorizer."""

ASK_NOTHING = {
    *(ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE),
    *(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY),
    # Owner and renewers are allowed, and no other client.
    *(ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN),
}

NO_DECISIONS = {
    "DescribeTransactions": "allow User:* DESCRIBE topic:t",
    "CreateTopics": "allow User:* DESCRIBE_CONFIGS topic:new",
    "CreateTopics by name": "allow User:* DESCRIBE_CONFIGS topic:new",
    "ListTransactions": "allow User:* DESCRIBE transactional_id:x",
    "DescribeDelegationToken": "allow User:* DESCRIBE_TOKENS user:User:ada",
    # Any topic is enough here, so no single rule decides.
    "InitProducerId": "allow User:* WRITE topic:some*",
}
"""Cases in which no decision names the rules: the rules that decide only what an answer shows, and the reasons."""


class Remembering(StaticAuthorizer):
    """An authorizer that keeps the contexts of its requests."""

    def __init__(self, settings: StaticSettings) -> None:
        super().__init__(settings)
        self.contexts: list[RequestContext] = []

    def decide(self, context: RequestContext, *question: Any, log_if_denied: bool = True) -> Verdict:
        self.contexts.append(context)
        return super().decide(context, *question, log_if_denied=log_if_denied)

    def authorize_by_resource_type(self, context: RequestContext, *question: Any) -> bool:
        self.contexts.append(context)
        return super().authorize_by_resource_type(context, *question)


@pytest.fixture
def guarded(tmp_path: Path) -> Any:
    key = tmp_path / "token.key"
    key.write_text("the key\n")
    (tmp_path / "data").mkdir()
    harness = BrokerHarness(tmp_path / "data")
    harness.open(delegation_token_secret_key_file=key)
    harness.listener.security_protocol = "SASL_PLAINTEXT"
    harness.principal = KafkaPrincipal("alice")
    harness.create_topic("t")
    yield harness
    harness.broker.close()


def assert_named(contexts: list[RequestContext], rules: tuple[str, ...], unnamed: str | None) -> None:
    """Check that the decisions that allow name exactly these rules, except one."""
    decisions = [one for context in contexts for one in context.decisions or ()]
    found = {verdict.acl for *_, granted, verdict in decisions if granted and verdict is not None}
    needed = {binding for rule in rules for binding in parse_rule(rule)}
    assert found == needed - set(parse_rule(unnamed) if unnamed is not None else ())
    assert all(verdict is None or verdict.granted is granted for *_, granted, verdict in decisions)


@pytest.mark.parametrize("name", EVERY)
def test_each_decision_is_recorded_with_the_rule_that_decided(guarded: BrokerHarness, name: str) -> None:
    """For every API, the decisions must name the rules that the request requires."""
    request, version, rules = EVERY[name]
    # The things that lists and responses show exist.
    guarded.send(InitProducerIdRequest("x", 1000), 4)
    guarded.send(CreateDelegationTokenRequest("User", "ada"), 3)
    topic_id = guarded.broker.topics.all()[0].id
    if name == "ShareAcknowledge":
        # The requests run within a session of an existing group.
        heartbeat, heartbeat_version, _ = share.OF_GROUPS["ShareGroupHeartbeat"]
        guarded.send(heartbeat, heartbeat_version)
        guarded.broker.store.write_and_wait([])
        guarded.send(share.of_session(topic_id)["ShareFetch"], 1)
    guarded.principal = KafkaPrincipal("bob")
    authorizer = guarded.listener.authorizer = Remembering(StaticSettings(rules=rules))
    guarded.send(request(topic_id) if callable(request) else request, version)
    guarded.broker.store.write_and_wait([])
    guarded.advance_ms(0)
    assert authorizer.contexts
    assert_named(authorizer.contexts, rules, NO_DECISIONS.get(name))


def test_the_cases_contain_every_api_of_the_broker(guarded: BrokerHarness) -> None:
    """The test fails for a new handler until a case says which rights its API requires."""
    topic_id = guarded.broker.topics.all()[0].id
    tried = {(request(topic_id) if callable(request) else request).API_KEY for request, _, _ in EVERY.values()}
    assert {handler.api_key for handler in guarded.broker.handlers()} - ASK_NOTHING == tried
    assert not tried & ASK_NOTHING


@pytest.mark.parametrize("key", sorted(ASK_NOTHING), ids=lambda key: key.name)
def test_an_api_without_authorization_has_no_decision(guarded: BrokerHarness, key: ApiKey) -> None:
    authorizer = guarded.listener.authorizer = Remembering(StaticSettings())
    spec = spec_of(key)
    guarded.send(vars(load(key))[f"{spec.name}Request"](), spec.max_version)
    assert authorizer.contexts == []
