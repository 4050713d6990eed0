"""Tests of `acl` and `static` beyond rules: super users, the default, the log, and the metrics."""

from __future__ import annotations

import logging
import re
from dataclasses import replace

import pytest

from klamm import Address, ConnectionContext, KafkaPrincipal, ListenerContext, RequestContext, ServerServices
from klamm.acl import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from klamm.config import specs_of
from klamm.logs.escaping import EscapingFormatter
from klamm.testing import ManualClock
from klamm_authorizers.acl import AclAuthorizer
from klamm_authorizers.authorizer_settings import AclSettings, StaticSettings
from klamm_authorizers.index import AclIndex
from klamm_authorizers.static import StaticAuthorizer
from tests.unit.broker.broker_harness import Reply

READ, WRITE, TOPIC = AclOperation.READ, AclOperation.WRITE, ResourceType.TOPIC
SETTINGS = StaticSettings(rules=("allow User:alice READ topic:orders", "deny User:* ALL topic:*"))


def opened(settings: StaticSettings) -> tuple[StaticAuthorizer, ListenerContext]:
    address = Address("127.0.0.1", 9092)
    listener = ListenerContext("guarded", address, address)
    authorizer = StaticAuthorizer(settings)
    authorizer.open(listener)
    listener.authorizer = authorizer
    return authorizer, listener


def request_of(listener: ListenerContext, user: str) -> RequestContext:
    connection = ConnectionContext(
        "test", listener, listener.bound, Address("10.0.0.1", 40_000), principal=KafkaPrincipal(user)
    )
    return RequestContext(connection, Reply(None, None, 0), 3, 12, 1, "test-client")


def counted(listener: ListenerContext) -> dict[str, float]:
    (family,) = (each for each in listener.services.metrics.collect() if each.name.endswith("DecisionsTotal"))
    return {sample.labels["result"]: sample.value for sample in family.samples}


def test_super_users_are_allowed_even_if_a_rule_denies_all() -> None:
    authorizer, listener = opened(replace(SETTINGS, super_users=("User:root",)))
    root, alice = request_of(listener, "root"), request_of(listener, "alice")
    assert authorizer.authorize(root, WRITE, TOPIC, "orders")
    assert authorizer.authorize_by_resource_type(root, WRITE, TOPIC)
    assert not authorizer.authorize(alice, READ, TOPIC, "orders")
    assert not authorizer.authorize_by_resource_type(alice, READ, TOPIC)
    assert counted(listener) == {"allowed": 2, "denied": 2}


@pytest.mark.parametrize("default", [True, False])
def test_the_default_applies_to_resources_without_a_rule(default: bool) -> None:
    rules = ("allow User:alice READ topic:orders",)
    authorizer, listener = opened(StaticSettings(rules=rules, allow_everyone_if_no_acl_found=default))
    bob = request_of(listener, "bob")
    assert authorizer.authorize(bob, READ, TOPIC, "other") is default
    assert not authorizer.authorize(bob, READ, TOPIC, "orders")
    assert authorizer.authorize_by_resource_type(bob, READ, TOPIC) is default


def test_denials_are_logged_at_info_and_permissions_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    authorizer, listener = opened(StaticSettings(rules=("allow User:alice READ topic:orders",)))
    alice = request_of(listener, "alice")
    with caplog.at_level(logging.DEBUG, "klamm.authorizer"):
        authorizer.authorize(alice, READ, TOPIC, "orders")
        authorizer.authorize(alice, WRITE, TOPIC, "orders")
        authorizer.authorize(alice, WRITE, TOPIC, "orders", log_if_denied=False)
    assert [record.levelname for record in caplog.records] == ["DEBUG", "INFO", "DEBUG"]
    said = caplog.records[1].getMessage()
    assert said.startswith(
        "listener=guarded principal=User:alice denied operation=WRITE host=10.0.0.1 resource=TOPIC:orders"
    )


def test_a_name_cannot_start_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    authorizer, listener = opened(SETTINGS)
    authorizer.authorize(request_of(listener, "mallory\nroot"), READ, TOPIC, "orders\nlistener=guarded")
    with caplog.at_level(logging.INFO, "klamm.authorizer"):
        authorizer.authorize(request_of(listener, "mallory\nroot"), READ, TOPIC, "orders\nlistener=guarded")
    assert "\n" not in EscapingFormatter().format(caplog.records[0])


def test_metrics_of_rates_and_rules_have_kafkas_names() -> None:
    clock = ManualClock()
    address = Address("127.0.0.1", 9092)
    listener = ListenerContext("guarded", address, address, services=ServerServices(clock))
    authorizer = StaticAuthorizer(SETTINGS)
    authorizer.open(listener)
    alice, bob = request_of(listener, "alice"), request_of(listener, "bob")

    def rates() -> dict[str, float]:
        return {
            family.name.rpartition("=")[2]: family.samples[0].value
            for family in listener.services.metrics.collect(lambda name: "type=plugins," in name)
        }

    assert rates() == {
        "acls-total-count": 2,
        "authorization-allowed-rate-per-minute": 0,
        "authorization-denied-rate-per-minute": 0,
        "authorization-request-rate-per-minute": 0,
    }
    for _ in range(3):
        assert not authorizer.authorize(bob, READ, TOPIC, "orders")
    assert not authorizer.authorize(alice, READ, TOPIC, "orders")
    clock.advance_ms(30_000)
    assert rates()["authorization-denied-rate-per-minute"] == 8
    assert rates()["authorization-request-rate-per-minute"] == 8
    assert rates()["authorization-allowed-rate-per-minute"] == 0
    clock.advance_ms(60_000)
    assert rates()["authorization-denied-rate-per-minute"] == 0, "what was before the last minute is forgotten"


def test_all_wrong_rules_are_named_with_what_to_write():
    (check,) = [spec.check for name, spec in specs_of(StaticSettings).items() if name == "rules"]
    problem = check(("allow User:alice READ topic:orders", "allow alice READ topic:x", "User:bob may READ topic:x", ""))
    assert re.findall(r'rule (\d), "([^"]*)": ', problem) == [
        ("2", "allow alice READ topic:x"),
        ("3", "User:bob may READ topic:x"),
        ("4", ""),
    ]
    assert "User:alice" in problem
    assert check(("allow User:alice READ topic:orders",)) is None


def denied_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "INFO"]


def test_a_request_with_many_denied_names_writes_one_line(caplog: pytest.LogCaptureFixture) -> None:
    _, listener = opened(SETTINGS)
    request = request_of(listener, "mallory")
    with caplog.at_level(logging.INFO, "klamm.authorizer"):
        assert not any(request.authorize(READ, TOPIC, f"topic-{number}") for number in range(500))
    (line,) = denied_lines(caplog)
    assert "resource=TOPIC:topic-0 " in line
    assert request.decisions is not None
    assert len(request.decisions) == 500, "the audit has all of them"


def test_denials_of_one_client_are_limited_by_rate_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock, address = ManualClock(), Address("127.0.0.1", 9092)
    listener = ListenerContext("guarded", address, address, services=ServerServices(clock))
    listener.authorizer = authorizer = StaticAuthorizer(SETTINGS)
    authorizer.open(listener)
    with caplog.at_level(logging.INFO, "klamm.authorizer"):
        for _ in range(1000):
            assert not request_of(listener, "mallory").authorize(READ, TOPIC, "orders")
        assert not request_of(listener, "bob").authorize(READ, TOPIC, "orders")
        lines = denied_lines(caplog)
        assert [line.split()[1] for line in lines] == ["principal=User:mallory"] * 5 + ["principal=User:bob"]
        clock.advance_ms(60_000)
        listener.services.scheduler.run_due()
    assert denied_lines(caplog)[-1].startswith("995 more in 60 s like the first, which was: listener=guarded")


def test_names_that_clients_choose_are_clipped(caplog: pytest.LogCaptureFixture) -> None:
    authorizer, listener = opened(SETTINGS)
    with caplog.at_level(logging.DEBUG, "klamm.authorizer"):
        authorizer.authorize(request_of(listener, "m" * 30_000), READ, TOPIC, "t" * 30_000)
    assert len(caplog.records[0].getMessage()) < 1_000


def test_changed_settings_replace_super_users_default_and_rules_at_once() -> None:
    authorizer, listener = opened(SETTINGS)
    alice, bob = request_of(listener, "alice"), request_of(listener, "bob")
    assert authorizer.reconfigure(replace(SETTINGS, super_users=("User:bob",)))
    assert authorizer.authorize(bob, WRITE, TOPIC, "orders")
    assert authorizer.authorize_by_resource_type(bob, WRITE, TOPIC)
    rules = StaticSettings(rules=("allow User:alice WRITE topic:orders",), allow_everyone_if_no_acl_found=True)
    assert authorizer.reconfigure(rules)
    assert authorizer.authorize(alice, WRITE, TOPIC, "orders")
    assert not authorizer.authorize(bob, WRITE, TOPIC, "orders")
    assert authorizer.authorize(bob, WRITE, TOPIC, "other")
    with pytest.raises(ValueError, match="must have the form"):
        authorizer.reconfigure(replace(rules, rules=("nonsense",)))
    assert authorizer.authorize(alice, WRITE, TOPIC, "orders")
    assert authorizer.settings == rules


def test_changed_settings_of_acl_keep_the_rules_and_apply_a_new_source_at_the_next_start() -> None:
    authorizer = AclAuthorizer(AclSettings())
    rule = AclBinding(TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", READ, AclPermission.ALLOW)
    authorizer.index = AclIndex([rule])
    settings = AclSettings(super_users=("User:bob",))
    assert authorizer.reconfigure(settings)
    assert list(authorizer.index.bindings()) == [rule]
    assert not authorizer.reconfigure(AclSettings(rules="cluster"))
    assert authorizer.settings == settings
