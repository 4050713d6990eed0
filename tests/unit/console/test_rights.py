"""Tests of the console's page of rights: who is allowed to do what, and why others are not."""

import pytest

from klamm import Address, ListenerContext
from klamm.acl import AclOperation, LaterAuthorizer, LaterSettings, Verdict
from klamm_console import access
from tests.unit.console.conftest import HOSTILE, Browser


def test_the_page_shows_each_decision_with_its_reason(secure):
    admin = Browser(secure)
    admin.log_in("admin")
    status, found = admin.rights(principal="alice", resource="TOPIC", name="orders", host="192.0.2.7")
    assert (status, found["principal"], found["host"]) == (200, "User:alice", "192.0.2.7")
    rows = {row["operation"]: row for row in found["operations"]}
    assert [rows[name]["allowed"] for name in ("READ", "DESCRIBE", "WRITE")] == [True, True, False]
    assert rows["READ"]["rule"] == {
        "resource": "TOPIC",
        "name": "orders",
        "pattern": "LITERAL",
        "principal": "User:alice",
        "host": "*",
        "operation": "READ",
        "permission": "ALLOW",
    }
    assert (rows["WRITE"]["reason"], rows["WRITE"]["rule"]) == ("no rule allows it", None)
    (row,) = admin.rights(principal="User:admin", resource="CLUSTER", operation="ALTER")[1]["operations"]
    assert (row["allowed"], row["decided_by"]) == (True, "super_user")
    other = admin.rights(principal="Group:alice", resource="TOPIC", name="orders", operation="READ")[1]
    assert other["operations"][0]["allowed"] is False


@pytest.mark.parametrize(
    "query",
    [
        {"resource": "TOPIC"},
        {"principal": "x" * 5_000, "resource": "TOPIC"},
        {"principal": "User:alice", "resource": "ANY"},
        {"principal": "User:alice", "resource": "TOPIC", "operation": "CREATE_TOKENS"},
        {"principal": "User:alice", "resource": "TOPIC", "host": "example.org"},
        {"principal": "User:alice", "resource": "TOPIC", "listener": "none"},
    ],
)
def test_invalid_questions_about_rights_are_refused(secure, query):
    admin = Browser(secure)
    admin.log_in("admin")
    assert admin.rights(**query)[0] == 400


def test_without_an_authorizer_everything_is_allowed(browser):
    (row,) = browser.rights(principal=HOSTILE, resource="TOPIC", name=HOSTILE, operation="READ")[1]["operations"]
    assert row["allowed"] is True
    assert "no authorizer" in row["reason"]


def test_an_authorizer_that_raises_denies_all():
    class Broken:
        def prepare(self, _context, _resources):
            return None

        def decide(self, *_arguments, **_options):
            raise ZeroDivisionError

    listener = ListenerContext("default", Address("127.0.0.1", 1), Address("127.0.0.1", 1), authorizer=Broken())
    (row,) = access.rights(listener, "User:admin", "::1", "CLUSTER", "", "ALTER")["operations"]
    assert row["allowed"] is False
    assert "ZeroDivisionError" in row["reason"]


def test_an_authorizer_decides_even_if_its_preparation_fails():
    class Odd:
        def prepare(self, _context, _resources):
            raise ZeroDivisionError

        def decide(self, *_arguments, **_options):
            return Verdict(True)

    listener = ListenerContext("default", Address("127.0.0.1", 1), Address("127.0.0.1", 1), authorizer=Odd())
    (row,) = access.rights(listener, "User:admin", "::1", "CLUSTER", "", "ALTER")["operations"]
    assert row["allowed"] is True


def test_the_page_waits_for_an_authorizer_that_decides_later():
    class Later(LaterAuthorizer):
        def permitted(self, principal, _host, _resource_type, name):
            return [AclOperation.READ] if (str(principal), name) == ("User:alice", "orders") else []

    listener = ListenerContext("default", Address("127.0.0.1", 1), Address("127.0.0.1", 1))
    listener.authorizer = Later(LaterSettings(timeout_ms=60_000))
    listener.authorizer.open(listener)
    found = access.rights(listener, "alice", "::1", "TOPIC", "orders", "")
    listener.authorizer.close()
    assert [row["operation"] for row in found["operations"] if row["allowed"]] == ["READ"]
