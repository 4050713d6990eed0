"""`acl.rules = "cluster"`: the gateway asks the cluster for its ACLs; while it does not know them, all is denied."""

import contextlib

import pytest

import klamm_authorizers
from klamm.acl import AclBinding, AclOperation, AclPermission, ClusterAcls, PatternType, ResourceType
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.headers import decode_request_header
from klamm.wire.messages import describe_acls
from klamm.wire.messages.create_acls import AclCreation, CreateAclsRequest
from klamm.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from klamm.wire.messages.describe_acls import AclDescription, DescribeAclsResource, DescribeAclsResponse
from klamm.wire.messages.describe_groups import DescribeGroupsRequest
from klamm.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.contract.gateway_nodes import FakeNode, gateway, response
from tests.sasl_client import log_in, users_setting
from tests.waiting import wait_until

GROUP_DENIED, CLUSTER_DENIED, SECURITY_DISABLED = 30, 31, 54
TOPIC, GROUP, ANY, LITERAL, PREFIXED, READ, DENY, ALLOW = 2, 3, 1, 3, 4, 3, 2, 3
MAX_AGE_MS = 400
ACLS = [
    "listeners.default.authorizer=acl",
    "listeners.default.acl.rules=cluster",
    f"gateway.acls_max_age_ms={MAX_AGE_MS}",
]
SASL = [
    "listeners.default.authenticator=sasl",
    'listeners.default.sasl.mechanisms=["PLAIN"]',
    f"listeners.default.{users_setting(alice='a', bob='b')}",
]


class AclNode(FakeNode):
    """A node with ACLs: `answer` is its DescribeAclsResponse, None for no answer at all. It lets everybody in."""

    def __init__(self, *rules):
        super().__init__(_serve)
        self.answer = rules_as_answer(rules)


def rules_as_answer(rules):
    """`(resource type, name, pattern, principal, host, operation, permission)` each."""
    return DescribeAclsResponse(
        resources=[DescribeAclsResource(*rule[:3], [AclDescription(*rule[3:])]) for rule in rules], error_message=None
    )


def _serve(node, sock, frame):
    key, version, correlation_id, _client, _offset = decode_request_header(frame)
    answer = node.answer if key == describe_acls.API_KEY else HeartbeatResponse(0, 0)
    if answer is not None:
        sock.sendall(response(correlation_id, key, version, answer.encode(version)))


@contextlib.contextmanager
def logged_in(front, user):
    with RawClient(front.address()) as client:
        assert log_in(client, "PLAIN", user, user[0]).error_code == 0
        yield client


def may_read(front, group, user="alice"):
    with logged_in(front, user) as client:
        code = client.call(HeartbeatRequest(group), 3).error_code
    assert code in (0, GROUP_DENIED)
    return code == 0


def rule(name, *, principal="User:alice", host="*", pattern=LITERAL, operation=READ, permission=ALLOW, kind=GROUP):
    return (kind, name, pattern, principal, host, operation, permission)


def front_of(node, *more):
    return gateway(node.bootstrap, [*ACLS, *SASL, *more], plugins=[klamm_authorizers])


def test_the_rules_of_the_cluster_decide_and_are_asked_for_again():
    with AclNode(rule("hers"), rule("pre", pattern=PREFIXED)) as node, front_of(node) as front:
        assert [may_read(front, name) for name in ("hers", "prefix", "his")] == [True, True, False]
        assert not may_read(front, "hers", "bob")
        node.answer = rules_as_answer([rule("*"), rule("hers", permission=DENY)])
        wait_until(lambda: may_read(front, "his"))
        assert not may_read(front, "hers")


@pytest.mark.parametrize("code", [SECURITY_DISABLED, CLUSTER_DENIED])
def test_a_cluster_that_refuses_closes_everything_at_once(code):
    with AclNode(rule("hers")) as node, front_of(node) as front:
        assert may_read(front, "hers")
        refusal, rules = DescribeAclsResponse(error_code=code), node.answer
        node.answer = refusal
        wait_until(lambda: not may_read(front, "hers"))
        node.answer = rules
        wait_until(lambda: may_read(front, "hers"))


def test_a_cluster_that_does_not_answer_closes_everything_when_the_rules_are_too_old():
    with AclNode(rule("hers")) as node, front_of(node, 'listeners.default.acl.super_users=["User:bob"]') as front:
        assert may_read(front, "hers")
        node.answer = None
        wait_until(lambda: not may_read(front, "hers"))
        assert may_read(front, "hers", "bob"), "super users are klamm's own"
        assert front.api_set()._acls.bindings is None


def test_without_an_answer_nothing_is_open_by_default():
    with AclNode() as node:
        node.answer = None
        with front_of(node, "listeners.default.acl.allow_everyone_if_no_acl_found=true") as front:
            assert not may_read(front, "hers")
            node.answer = rules_as_answer([])
            wait_until(lambda: may_read(front, "hers"))


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ([rule("hers"), rule("*", operation=99, permission=DENY)], True),
        ([rule("hers"), rule("hers", kind=99, permission=DENY)], True),
        ([rule("hers"), rule("other", permission=9)], False),
        ([rule("hers"), rule("other", pattern=9)], False),
        ([rule("hers", host="127.0.0.0/8")], False),
        ([rule("hers", host="no/host")], False),
    ],
    ids=["operation", "resource type", "permission", "pattern", "a network is no host", "no host"],
)
def test_rules_that_klamm_does_not_know(rules, allowed):
    """Rules about operations that no request needs change nothing; a rule of unknown meaning allows nothing."""
    with AclNode(*rules) as node, front_of(node) as front:
        assert may_read(front, "hers") is allowed


def test_acls_changed_through_the_gateway_apply_in_the_cluster():
    """CreateAcls and DeleteAcls through the gateway change the rules of the cluster, and soon what is allowed."""
    broker = [
        "listeners.default.authorizer=acl",
        'listeners.default.acl.super_users=["User:ANONYMOUS"]',
        "broker.group.initial.rebalance.delay.ms=0",
    ]
    with EmbeddedServer(broker) as upstream:
        host, port = upstream.address()
        settings = [*ACLS, *SASL, 'listeners.default.acl.super_users=["User:bob"]']
        with (
            gateway(f"{host}:{port}", settings, plugins=[klamm_authorizers]) as front,
            logged_in(front, "alice") as alice,
            logged_in(front, "bob") as bob,
        ):

            def is_denied():
                (group,) = alice.call(DescribeGroupsRequest(["hers"]), 5).groups
                return group.error_code == GROUP_DENIED

            assert is_denied()
            created = bob.call(CreateAclsRequest([AclCreation(*rule("hers", operation=8))]), 3)
            assert created.results[0].error_code == 0
            wait_until(lambda: not is_denied())
            bob.call(DeleteAclsRequest([DeleteAclsFilter(GROUP, "hers", LITERAL, None, None, ANY, ANY)]), 3)
            wait_until(is_denied)


def test_watchers_of_cluster_acls_get_each_change():
    acls, seen = ClusterAcls(), []
    assert not acls.is_watched
    acls.watch(seen.append)
    binding = AclBinding(
        ResourceType.TOPIC, "t", PatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermission.ALLOW
    )
    acls.replace([binding])
    acls.replace(None)
    assert seen == [None, [binding], None]
    assert acls.is_watched
