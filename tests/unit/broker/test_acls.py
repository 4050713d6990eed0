"""Tests of DescribeAcls, CreateAcls and DeleteAcls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm import ErrorCode
from klamm.acl import AclOperation, AclPermission, PatternType, ResourceType
from klamm.wire.messages.create_acls import AclCreation, CreateAclsRequest
from klamm.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from klamm.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from klamm_authorizers.acl import AclAuthorizer
from klamm_authorizers.authorizer_settings import AclSettings
from tests.unit.broker.broker_harness import BrokerHarness

ANY = 1
READ, ALLOW = AclOperation.READ, AclPermission.ALLOW
LITERAL, PREFIXED, MATCH = PatternType.LITERAL, PatternType.PREFIXED, PatternType.MATCH


def authorize(harness: BrokerHarness, super_users: tuple[str, ...] = ("User:ANONYMOUS",)) -> None:
    authorizer = AclAuthorizer(AclSettings(super_users=super_users))
    authorizer.open(harness.listener)
    harness.listener.authorizer = authorizer


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[BrokerHarness]:
    harness = BrokerHarness(tmp_path)
    harness.open()
    authorize(harness)
    yield harness
    harness.broker.close()


def creation(
    name: str = "orders", pattern: PatternType = LITERAL, principal: str = "User:alice", host: str = "*"
) -> AclCreation:
    return AclCreation(ResourceType.TOPIC, name, pattern, principal, host, READ, ALLOW)


def create(harness: BrokerHarness, *creations: AclCreation) -> list[tuple[int, str | None]]:
    response = harness.call(CreateAclsRequest(list(creations)), 3)
    return [(result.error_code, result.error_message) for result in response.results]


def wanted(name: str | None = None, pattern: int = ANY) -> DescribeAclsRequest:
    return DescribeAclsRequest(ANY, name, pattern, None, None, ANY, ANY)


def names(response: DescribeAclsResponse) -> list[str]:
    return [resource.resource_name for resource in response.resources]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_created_acls_are_described(guarded: BrokerHarness, version: int) -> None:
    assert create(guarded, creation(), creation(principal="User:bob"), creation("ord", PREFIXED)) == [(0, "")] * 3
    response = guarded.call(wanted(), version)
    assert [(r.resource_name, r.pattern_type, len(r.acls)) for r in response.resources] == [
        ("ord", 4, 1),
        ("orders", 3, 2),
    ]
    assert {(a.principal, a.host, a.operation, a.permission_type) for a in response.resources[1].acls} == {
        ("User:alice", "*", 3, 3),
        ("User:bob", "*", 3, 3),
    }


def test_acls_are_filtered_by_pattern(guarded: BrokerHarness) -> None:
    create(guarded, creation(), creation("ord", PREFIXED), creation("*"), creation("else"))
    assert names(guarded.call(wanted("orders", LITERAL), 3)) == ["orders"]
    assert names(guarded.call(wanted("orders", MATCH), 3)) == ["*", "ord", "orders"]
    assert names(guarded.call(wanted("ord", ANY), 3)) == ["ord"]
    assert names(guarded.call(wanted(None, PREFIXED), 3)) == ["ord"]


def test_a_refused_creation_does_not_affect_others_in_the_request(guarded: BrokerHarness) -> None:
    results = create(
        guarded, creation(), creation(""), creation(principal="alice"), creation(pattern=PatternType.MATCH)
    )
    assert [code for code, _ in results] == [0, *[ErrorCode.INVALID_REQUEST] * 3]
    assert names(guarded.call(wanted(), 3)) == ["orders"]


@pytest.mark.parametrize(
    ("host", "is_taken"),
    [("*", True), ("10.0.0.1", True), ("host", True), ("", False)]
    + [(each, True) for each in ("10.0.0.0/8", "10.0.0.1/8", "10.0.0.0/08", "fe80::/10", "2001:db8::1/64")]
    + [(each, False) for each in ("10.0.0.0/33", "10.0.0.0/", "/8", "x/8", "10.0.0/8", "10.0.0.0/8/8", "fe80::/129")]
    + [(each, False) for each in ("10.0.0.0/255.0.0.0", "10.0.0.0/0.255.255.255", "10.0.0.0/+8", " 10.0.0.0/8")],
)
def test_the_accepted_hosts_are_kafkas(guarded: BrokerHarness, host: str, is_taken: bool) -> None:
    ((code, _message),) = create(guarded, creation(host=host))
    assert code == (ErrorCode.NONE if is_taken else ErrorCode.INVALID_REQUEST)


def test_acls_are_deleted_by_filter(guarded: BrokerHarness) -> None:
    create(guarded, creation(), creation("other"), creation(principal="User:bob"))
    gone = DeleteAclsFilter(ResourceType.TOPIC, "orders", LITERAL, None, None, ANY, ANY)
    none = DeleteAclsFilter(ResourceType.TOPIC, "none", LITERAL, None, None, ANY, ANY)
    first, second = guarded.call(DeleteAclsRequest([gone, none]), 3).filter_results
    assert sorted(acl.principal for acl in first.matching_acls) == ["User:alice", "User:bob"]
    assert (second.error_code, second.matching_acls) == (0, [])
    assert names(guarded.call(wanted(), 3)) == ["other"]


def filter_with(place: int, code: int) -> tuple[int, str, int, None, None, int, int]:
    codes = [ResourceType.TOPIC, LITERAL, ANY, ANY]
    codes[place] = code
    return codes[0], "orders", codes[1], None, None, codes[2], codes[3]


@pytest.mark.parametrize("code", [0, 99, -1])
@pytest.mark.parametrize("place", range(4))
def test_unknown_types_close_the_connection(guarded: BrokerHarness, place: int, code: int) -> None:
    create(guarded, creation())
    known, unknown = (DeleteAclsFilter(*filter_with(place, each)) for each in (ANY, code))
    new = creation("other")
    setattr(new, ("resource_type", "resource_pattern_type", "operation", "permission_type")[place], code)
    for request in (
        DescribeAclsRequest(*filter_with(place, code)),
        DeleteAclsRequest([known, unknown]),
        CreateAclsRequest([creation("third"), new]),
    ):
        assert guarded.send(request, 3).closed == "an ACL has an unknown type, operation or permission"
    assert names(guarded.call(wanted(), 3)) == ["orders"]


def test_acls_survive_a_restart(guarded: BrokerHarness) -> None:
    create(guarded, creation())
    guarded.listener.services = type(guarded.listener.services)()
    guarded.reopen()
    authorize(guarded)
    assert names(guarded.call(wanted(), 3)) == ["orders"]


def test_acls_are_disabled_without_an_authorizer(harness: BrokerHarness) -> None:
    assert harness.call(wanted(), 3).error_code == ErrorCode.SECURITY_DISABLED
    assert create(harness, creation())[0][0] == ErrorCode.SECURITY_DISABLED


def test_requests_about_acls_require_rights_on_the_cluster(guarded: BrokerHarness) -> None:
    authorize(guarded, super_users=())
    assert guarded.call(wanted(), 3).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert create(guarded, creation())[0][0] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_adding_or_removing_a_rule_does_not_rebuild_the_index(guarded: BrokerHarness) -> None:
    authorizer = guarded.listener.authorizer
    assert isinstance(authorizer, AclAuthorizer)
    create(guarded, *[creation(f"topic-{number}") for number in range(10)])
    index = authorizer.index
    for number in range(10, 500):
        create(guarded, creation(f"topic-{number}"))
    create(guarded, creation("topic-10"))
    guarded.call(DeleteAclsRequest([DeleteAclsFilter(ANY, "topic-3", ANY, None, None, ANY, ANY)]), 3)
    assert authorizer.index is index
    assert len(index) == 499
    assert names(guarded.call(wanted("topic-3"), 3)) == []
    assert names(guarded.call(wanted("topic-499"), 3)) == ["topic-499"]
