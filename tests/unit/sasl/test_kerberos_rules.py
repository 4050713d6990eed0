"""Tests of changed `principal_to_local_rules` for GSSAPI, and of their effect on sessions. They need no KDC."""

import dataclasses
import importlib

import pytest

from klamm import Address, ListenerContext, ServerServices, SessionRegistry
from klamm.api.sessions import RECHECK_DELAY_MS
from klamm.testing import EmbeddedServer, ManualClock
from klamm_sasl.sasl_settings import GssapiSettings

pytest.importorskip("gssapi", reason="klamm[gssapi] is not installed")
gssapi_mechanism = importlib.import_module("klamm_sasl.gssapi_mechanism")

HERE = Address("127.0.0.1", 1)
FIRST = "RULE:[1:$1]/L"
WHY = "the rules now map the Kerberos principal to another name"


class Connection:
    def __init__(self, principal):
        self.principal = principal


@pytest.fixture
def services():
    return ServerServices(ManualClock())


@pytest.fixture
def ended():
    return []


@pytest.fixture
def mechanism(services, ended):
    """Return an open mechanism without a key."""
    settings = GssapiSettings(principal_to_local_rules=(FIRST,), default_realm="EXAMPLE.COM")
    made = gssapi_mechanism.GssapiMechanism(settings)
    listener = ListenerContext("front", HERE, HERE, "SASL_PLAINTEXT", services)
    made._sessions = SessionRegistry(listener, lambda connection, reason: ended.append((connection, reason)))
    made.namer = gssapi_mechanism._namer(settings)
    return made


def log_in(mechanism, name):
    principal, proof = mechanism.principal_of(name)
    connection = Connection(principal)
    assert mechanism._sessions.add(connection, proof.key, proof.revoked_because) is None
    return connection


def other_rules(mechanism, *rules):
    return dataclasses.replace(mechanism.settings, principal_to_local_rules=rules)


@pytest.mark.parametrize("rules", [("RULE:[1:$1]/U",), ("RULE:[2:$1]",)])
def test_sessions_whose_name_changes_by_the_new_rules_end_with_an_event(mechanism, services, ended, rules):
    events = []
    services.admin_events.subscribe(events.append)
    connection = log_in(mechanism, "Alice@EXAMPLE.COM")
    assert connection.principal.name == "alice"
    assert mechanism.reconfigure(other_rules(mechanism, *rules))
    services.clock.advance_ms(RECHECK_DELAY_MS)
    services.scheduler.run_due()
    assert ended == [(connection, WHY)]
    assert [event.detail for event in events] == [f"{WHY}: connections of User:alice (1)"]


def test_sessions_that_keep_their_name_continue(mechanism, services, ended):
    log_in(mechanism, "alice@EXAMPLE.COM")
    assert mechanism.reconfigure(other_rules(mechanism, "DEFAULT"))
    services.clock.advance_ms(RECHECK_DELAY_MS)
    services.scheduler.run_due()
    assert ended == []
    assert mechanism.principal_of("Bob@EXAMPLE.COM")[0].name == "Bob"


def test_other_settings_wait_for_the_next_start(mechanism):
    assert not mechanism.reconfigure(dataclasses.replace(mechanism.settings, default_realm="ELSEWHERE"))


def test_a_reload_gives_the_rules_to_the_mechanism(monkeypatch):
    monkeypatch.setattr(gssapi_mechanism.GssapiMechanism, "open", lambda self, context: opened.append(self))
    monkeypatch.setattr(
        gssapi_mechanism.GssapiMechanism, "reconfigure", lambda self, settings: taken.append(settings) or True
    )
    opened, taken = [], []

    def build(*settings):
        sasl = "listeners.default.sasl."
        own = ["listeners.default.authenticator=sasl", sasl + 'mechanisms=["GSSAPI", "PLAIN"]', *settings]
        return EmbeddedServer(own)

    rules = 'listeners.default.sasl.GSSAPI.principal_to_local_rules=["RULE:[1:$1]/L"]'
    with build() as server:
        assert len(opened) == 1
        assert server.server.reconfigure(build(rules).plan) == (
            ["[listeners.default.sasl.GSSAPI] principal_to_local_rules"],
            [],
        )
        assert [settings.principal_to_local_rules for settings in taken] == [(FIRST,)]
        assert server.server.reconfigure(build(rules).plan) == ([], [])
        changed_more = build(rules, "listeners.default.sasl.connections_max_reauth_ms=5000")
        assert server.server.reconfigure(changed_more.plan) == ([], [])
        assert len(taken) == 1
