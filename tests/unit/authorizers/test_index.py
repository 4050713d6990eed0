"""The index of rules decides the same as a walk over all rules."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.acl import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from klamm_authorizers.index import ANY_PRINCIPAL, AclIndex
from klamm_authorizers.rules import parse_rule

TOPIC = ResourceType.TOPIC
OPERATIONS = [
    AclOperation.ALL,
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.ALTER_CONFIGS,
]
NAMES = ["a", "ab", "abc", "b"]
HOSTS = ["10.0.0.1", "10.0.0.2", "192.168.0.1"]
bindings = st.builds(
    AclBinding,
    st.sampled_from([TOPIC, ResourceType.GROUP]),
    st.sampled_from([*NAMES, "*"]),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(["User:alice", "User:bob", ANY_PRINCIPAL]),
    st.sampled_from([*HOSTS, "*", "10.0.0.0/24"]),
    st.sampled_from(OPERATIONS),
    st.sampled_from([AclPermission.ALLOW, AclPermission.DENY]),
)
implied = {
    AclOperation.DESCRIBE: {AclOperation.READ, AclOperation.WRITE},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}


def about(rule: AclBinding, name: str) -> bool:
    if rule.pattern_type is PatternType.PREFIXED:
        return name.startswith(rule.resource_name)
    return rule.resource_name in ("*", name)


def for_client(rule: AclBinding, principal: str, host: str) -> bool:
    if rule.principal not in (principal, ANY_PRINCIPAL):
        return False
    if "/" in rule.host:
        return ipaddress.ip_address(host) in ipaddress.ip_network(rule.host)
    return rule.host in ("*", host)


def walk(rules: list[AclBinding], principal: str, host: str, operation: AclOperation, name: str, default: bool) -> bool:
    spoken_of = [rule for rule in rules if rule.resource_type is TOPIC and about(rule, name)]
    mine = [rule for rule in spoken_of if for_client(rule, principal, host)]
    if any(r.permission is AclPermission.DENY and r.operation in (operation, AclOperation.ALL) for r in mine):
        return False
    enough = {operation, AclOperation.ALL} | implied.get(operation, set())
    if any(rule.permission is AclPermission.ALLOW and rule.operation in enough for rule in mine):
        return True
    return default and not spoken_of


@given(
    st.lists(bindings, max_size=12),
    st.sampled_from(["User:alice", "User:carol"]),
    st.sampled_from(HOSTS),
    st.sampled_from([*OPERATIONS[1:], AclOperation.DESCRIBE_CONFIGS]),
    st.sampled_from(NAMES),
    st.booleans(),
)
def test_index_and_walk_agree(
    rules: list[AclBinding], principal: str, host: str, operation: AclOperation, name: str, default: bool
) -> None:
    found = AclIndex(rules).decide(principal, host, operation, TOPIC, name, default=default)
    assert found.granted == walk(rules, principal, host, operation, name, default)


@given(
    st.lists(bindings, max_size=4),
    st.lists(st.tuples(st.booleans(), bindings), max_size=20),
    st.sampled_from(["User:alice", "User:carol"]),
    st.sampled_from(OPERATIONS[1:]),
    st.sampled_from(NAMES),
)
def test_a_changed_index_equals_a_rebuilt_one(
    first: list[AclBinding],
    changes: list[tuple[bool, AclBinding]],
    principal: str,
    operation: AclOperation,
    name: str,
) -> None:
    changed, expected = AclIndex(first), set(first)
    for adds, binding in changes:
        # Most of them are rules that exist, because most random rules do not.
        if adds:
            changed.add(binding)
            expected.add(binding)
        else:
            gone = next(iter(sorted(expected)), binding)
            changed.remove(gone)
            expected.discard(gone)
    rebuilt = AclIndex(expected)
    assert set(changed.bindings()) == expected
    assert len(changed) == len(expected)
    for default in (True, False):
        asked = (principal, HOSTS[0], operation, TOPIC, name)
        assert changed.decide(*asked, default=default).granted == rebuilt.decide(*asked, default=default).granted
    assert changed.decide_for_any(*asked[:4]) == rebuilt.decide_for_any(*asked[:4])


@given(st.lists(bindings, max_size=10), st.sampled_from(HOSTS))
def test_a_right_on_some_resource_exists_only_if_one_can_be_named(rules: list[AclBinding], host: str) -> None:
    write = AclOperation.WRITE
    claimed = AclIndex(rules).decide_for_any("User:alice", host, write, TOPIC)
    names = {rule.resource_name + tail for rule in rules for tail in ("", "-something")} | {"else"}
    allowed = any(walk(rules, "User:alice", host, write, name, False) for name in names if name != "*")
    if claimed:
        # Pieces of an allowed wildcard may be denied one by one. Kafka does not check for that.
        wildcard = any(r.resource_name == "*" and r.permission is AclPermission.ALLOW for r in rules)
        assert allowed or wildcard
    else:
        assert not allowed


def rules(*texts: str) -> AclIndex:
    return AclIndex(binding for text in texts for binding in parse_rule(text))


@pytest.mark.parametrize(
    ("texts", "allowed"),
    [
        (("allow User:alice READ topic:orders",), True),
        (("allow User:alice READ topic:orders", "deny User:* READ topic:*"), False),
        (("allow User:alice READ topic:orders", "deny User:alice DESCRIBE topic:orders"), True),
        (("allow User:alice READ topic:ord*",), True),
        (("allow User:alice READ topic:order",), False),
        (("allow User:alice ALL topic:* from 10.0.0.0/8",), True),
        (("allow User:alice ALL topic:* from 10.1.0.0/16",), False),
        (("allow User:bob READ topic:orders",), False),
        (("allow User:* READ,WRITE topic:orders",), True),
    ],
)
def test_decisions_about_alice_reading_orders(texts: tuple[str, ...], allowed: bool) -> None:
    verdict = rules(*texts).decide("User:alice", "10.0.0.1", AclOperation.READ, TOPIC, "orders", default=False)
    assert verdict.granted is allowed


@pytest.mark.parametrize("host", ["::ffff:10.0.0.1", "10.0.0.1"])
def test_a_network_contains_mapped_addresses(host: str) -> None:
    index = rules("allow User:alice READ topic:orders from 10.0.0.0/8")
    assert index.decide("User:alice", host, AclOperation.READ, TOPIC, "orders", default=False).granted


@pytest.mark.parametrize(
    ("rule", "client"),
    [
        ("10.0.0.1", "::ffff:10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("FE80::1", "fe80::1%eth0"),
    ],
)
def test_all_spellings_of_an_address_are_equal(rule: str, client: str) -> None:
    index = rules("allow User:* ALL topic:*", f"deny User:alice READ topic:orders from {rule}")
    assert not index.decide("User:alice", client, AclOperation.READ, TOPIC, "orders", default=False).granted


@pytest.mark.parametrize(
    ("texts", "allowed"),
    [
        (("allow User:alice WRITE topic:orders",), True),
        (("allow User:bob WRITE topic:orders",), False),
        (("allow User:alice READ topic:orders",), False),
        (("allow User:* ALL topic:*", "deny User:alice WRITE topic:orders"), True),
        (("allow User:alice WRITE topic:orders", "deny User:alice WRITE topic:orders"), False),
        (("allow User:alice WRITE topic:orders", "deny User:* ALL topic:ord*"), False),
        (("allow User:alice WRITE topic:ord*", "deny User:* ALL topic:orders"), True),
        (("allow User:alice WRITE topic:orders*", "deny User:* ALL topic:ord*"), False),
        (("allow User:alice WRITE topic:orders", "deny User:* WRITE topic:*"), False),
        (("allow User:alice WRITE topic:orders", "deny User:* WRITE topic:* from 10.9.0.0/16"), True),
        (("allow User:alice WRITE group:orders",), False),
    ],
)
def test_decisions_about_alice_writing_to_some_topic(texts: tuple[str, ...], allowed: bool) -> None:
    assert rules(*texts).decide_for_any("User:alice", "10.0.0.1", AclOperation.WRITE, TOPIC) is allowed


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("permit User:alice READ topic:x", "allow or deny"),
        ("allow alice READ topic:x", "not a principal"),
        ("allow User:alice REED topic:x", "not an operation"),
        ("allow User:alice READ topik:x", "not a resource type"),
        ("allow User:alice READ topic", "must name the topic"),
        ("allow User:alice READ cluster:mine", "one cluster"),
        ("allow User:alice READ topic:x from nowhere", "not an address"),
        ("allow User:alice", "must have the form"),
    ],
)
def test_the_error_of_an_invalid_rule_is_named(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_rule(text)
