"""What the page changes in the credentials of users and in quotas."""

import json

import pytest

from klamm.testing import EmbeddedServer
from tests.unit.console.conftest import CONSOLE, HOSTILE, Browser
from tests.waiting import wait_until

SHA_512 = "SCRAM-SHA-512"


@pytest.fixture
def admin(secure):
    made = Browser(secure)
    assert made.log_in("admin")[0] == 200
    return made


def test_a_user_is_added_changed_and_deleted(secure, admin):
    new = {"user": "erin", "mechanism": SHA_512}
    assert admin("set_password", {**new, "password": "first"}) == (200, {})
    assert {"user": "erin", "mechanism": SHA_512, "iterations": 8192} in admin("users")[1]
    assert Browser(secure).log_in("erin", "first")[0] == 200
    assert admin("set_password", {**new, "password": "second"}) == (200, {})
    assert Browser(secure).log_in("erin", "first")[0] == 401
    assert Browser(secure).log_in("erin", "second")[0] == 200
    assert admin("delete_credential", new) == (200, {})
    assert "erin" not in {row["user"] for row in admin("users")[1]}
    assert admin("delete_credential", new)[1]["name"] == "RESOURCE_NOT_FOUND"
    assert Browser(secure).log_in("erin", "second")[0] == 401


@pytest.mark.parametrize(
    "wrong",
    [{"mechanism": "PLAIN"}, {"mechanism": None}, {"password": ""}, {"password": 7}, {"user": ["erin"]}],
    ids=str,
)
def test_a_wrong_credential_is_refused(admin, wrong):
    before = admin("users")[1]
    asked = {"user": "erin", "mechanism": SHA_512, "password": "secret"}
    assert admin("set_password", asked | wrong)[0] == 400
    assert admin("users")[1] == before


def test_a_user_without_the_right_changes_no_user_and_no_quota(secure, admin):
    alice = Browser(secure)
    alice.log_in("alice")
    before = admin("users")[1], admin("quotas")[1]
    asked = {"user": "admin", "mechanism": SHA_512, "password": "mine"}
    refused = [alice("set_password", asked), alice("delete_credential", asked), alice("users")]
    refused.append(alice("alter_quota", {"user": "alice", "key": "producer_byte_rate", "value": 1e9}))
    assert [(status, found["name"]) for status, found in refused] == [(403, "CLUSTER_AUTHORIZATION_FAILED")] * 4
    assert (admin("users")[1], admin("quotas")[1]) == before


@pytest.mark.parametrize(
    "entity",
    [
        {"user": "erin"},
        {"client_id": HOSTILE},
        {"user": "erin", "client_id": None},
        {"user": None},
        {"ip": "192.0.2.1"},
    ],
    ids=str,
)
def test_a_quota_is_set_and_removed(admin, entity):
    key = "connection_creation_rate" if "ip" in entity else "producer_byte_rate"
    before = admin("quotas")[1]
    assert admin("alter_quota", {**entity, "key": key, "value": 1048576}) == (200, {})
    (row,) = [each for each in admin("quotas")[1] if each not in before]
    assert (row["of"], row["quotas"]) == (entity, {key: 1048576})
    assert admin("alter_quota", {**entity, "key": key}) == (200, {})
    assert admin("quotas")[1] == before


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"value": "much"}, 400),
        ({"value": True}, 400),
        ({"value": float("nan")}, 400),
        ({"value": 10**400}, 400),
        ({"value": -1}, 409),
        ({"key": HOSTILE}, 409),
        ({"key": None}, 400),
        ({"user": 7}, 400),
        ({"ip": "192.0.2.1"}, 409),
    ],
    ids=str,
)
def test_a_wrong_quota_is_refused(admin, wrong, status):
    before = admin("quotas")[1]
    assert admin("alter_quota", {"user": "erin", "key": "producer_byte_rate", "value": 1} | wrong)[0] == status
    assert admin("quotas")[1] == before


def test_what_a_user_changes_is_in_the_audit_without_the_password(tmp_path):
    settings = ['listeners.default.observers=["audit"]', f"listeners.default.audit.spool={tmp_path}"]
    with EmbeddedServer([*CONSOLE, *settings]) as running:
        page = Browser(running)
        page.log_in()
        page("set_password", {"user": "erin", "mechanism": SHA_512, "password": "gr4vel-pit"})
        page("alter_quota", {"user": "erin", "key": "producer_byte_rate", "value": 7})
        wanted = {"AlterUserScramCredentials", "AlterClientQuotas"}
        wait_until(lambda: wanted <= {row.get("api_name") for row in page("audit")[1]})
        assert "gr4vel-pit" not in json.dumps(page("audit")[1])
