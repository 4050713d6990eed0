"""The settings of a listener's parts, as the console shows them."""

from klamm.testing import EmbeddedServer
from tests.sasl_client import users_setting
from tests.unit.console.conftest import CONSOLE, Browser

ALL, ERIN = "User:ANONYMOUS", "User:erin"


def test_the_parts_of_a_listener_have_their_origin_their_settings_and_their_own_parts(secure):
    admin = Browser(secure)
    admin.log_in("admin")
    status, found = admin("listener?name=secure")
    assert (status, found["name"]) == (200, "secure")
    parts = {(part["kind"], part["name"]): part for part in found["parts"]}
    sasl = parts["authenticator", "sasl"]
    assert sasl["distribution"] == "klamm"
    assert [each["name"] for each in sasl["parts"]] == ["SCRAM-SHA-512", "broker"]
    rows = {row["key"]: row for row in sasl["settings"]}
    assert (rows["mechanisms"]["value"], rows["mechanisms"]["default"]) == (["SCRAM-SHA-512"], False)
    assert rows["revoke_sessions"]["default"] is True
    (rule,) = [row for row in parts["authorizer", "acl"]["settings"] if row["key"] == "super_users"]
    assert rule["value"] == ["User:admin"]


def test_the_settings_are_those_in_use():
    one = [*CONSOLE, "listeners.default.authorizer=acl"]
    first, second = (
        EmbeddedServer([*one, f"listeners.default.acl.super_users={each}"]) for each in ([ALL], [ALL, ERIN])
    )
    with first as running:
        page = Browser(running)
        page.log_in()

        def super_users():
            (part,) = [part for part in page("listener?name=default")[1]["parts"] if part["kind"] == "authorizer"]
            return next(row["value"] for row in part["settings"] if row["key"] == "super_users")

        assert super_users() == [ALL]
        running.server.reconfigure(second.plan)
        assert super_users() == [ALL, ERIN]


def test_they_need_the_right_to_describe(secure, browser):
    alice = Browser(secure)
    alice.log_in("alice")
    assert alice("listener?name=secure")[0] == 403
    assert browser("listener?name=none")[0] == 409
    assert browser("listener")[0] == 400


def test_verifiers_of_users_are_not_shown():
    settings = [
        *CONSOLE,
        "listeners.default.authenticator=sasl",
        "listeners.default.authorizer=acl",
        f"listeners.default.acl.super_users={[ERIN]}",
        'listeners.default.sasl.mechanisms=["SCRAM-SHA-256"]',
        f"listeners.default.{users_setting(erin='secret')}",
    ]
    with EmbeddedServer(settings) as running:
        page = Browser(running)
        assert page.log_in("erin")[0] == 200
        status, content = page.send("GET", "/api/listener?name=default")
    assert status == 200
    assert b'"users", "value": "(hidden)"' in content
    assert b"SCRAM-SHA-256$" not in content
