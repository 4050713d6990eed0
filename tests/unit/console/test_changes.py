"""Tests of changes that the page makes with Kafka's protocol: configs of topics, and ACLs."""

import pytest

from tests.unit.console.conftest import HOSTILE, Browser

RULE = {
    "resource": "TOPIC",
    "name": "orders",
    "pattern": "PREFIXED",
    "principal": "User:bob",
    "host": "*",
    "operation": "READ",
    "permission": "ALLOW",
}


@pytest.fixture
def admin(secure):
    made = Browser(secure)
    assert made.log_in("admin")[0] == 200
    return made


def config_of(page, name):
    (found,) = [each for each in page("topic?name=orders")[1]["configs"] if each["name"] == name]
    return found["value"], found["source"]


def test_a_config_is_changed_and_returns_to_its_default(admin):
    before = config_of(admin, "retention.ms")
    assert admin("alter_config", {"name": "orders", "config": "retention.ms", "value": "4711"}) == (200, {})
    assert config_of(admin, "retention.ms") == ("4711", "topic")
    assert admin("alter_config", {"name": "orders", "config": "retention.ms"}) == (200, {})
    assert config_of(admin, "retention.ms") == before


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"config": "retention.ms", "value": HOSTILE}, 409),
        ({"config": HOSTILE, "value": "1"}, 409),
        ({"config": "retention.ms", "value": 7}, 400),
        ({"config": "retention.ms", "value": "\ud800"}, 400),
        ({"config": None}, 400),
    ],
)
def test_an_invalid_config_is_refused(admin, change, status):
    assert admin("alter_config", {"name": "orders", **change})[0] == status


def test_an_acl_is_created_and_deleted(admin):
    before = admin("acls")[1]
    assert admin("create_acl", RULE) == (200, {})
    assert [row for row in admin("acls")[1] if row not in before] == [RULE]
    assert admin("delete_acl", RULE) == (200, {})
    assert admin("acls")[1] == before
    assert admin("delete_acl", RULE)[0] == 409


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource": "ANY"},
        {"pattern": "MATCH"},
        {"operation": "FLY"},
        {"permission": 3},
        {"name": ["a"]},
        {"host": None},
    ],
    ids=str,
)
def test_an_invalid_acl_is_refused_and_none_is_deleted(admin, wrong):
    before = admin("acls")[1]
    assert admin("create_acl", RULE | wrong)[0] == 400
    assert admin("delete_acl", RULE | wrong)[0] == 400
    assert admin("acls")[1] == before


def test_a_user_without_the_right_changes_nothing(secure, admin):
    alice = Browser(secure)
    alice.log_in("alice")
    before = admin("acls")[1], config_of(admin, "retention.ms")
    assert alice("create_acl", RULE)[0] == 403
    assert alice("delete_acl", before[0][0])[0] == 403
    assert alice("alter_config", {"name": "orders", "config": "retention.ms", "value": "1"})[0] == 403
    assert (admin("acls")[1], config_of(admin, "retention.ms")) == before
