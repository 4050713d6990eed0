"""Tests of levels and exclusions, which decide which requests become events."""

import pytest

from klamm import KafkaPrincipal
from tests.unit.audit.observing import ping, produced


def test_level_metadata_leaves_out_resources_unless_they_were_denied(make):
    audit = make(level="metadata")
    connection = audit.connection()
    audit.complete(produced(audit, connection))
    denied = [("WRITE", "TOPIC", "orders", False)]
    audit.complete(produced(audit, connection, error=29, decisions=denied))
    first, second = audit.requests()
    assert "resources" not in first
    assert second["resources"] == [{"type": "TOPIC", "name": "orders", "operation": "WRITE", "granted": False}]


def test_level_off_still_records_denials(make):
    audit = make(level="off")
    connection = audit.connection()
    audit.complete(ping(audit, connection), produced(audit, connection), produced(audit, connection, error=29))
    assert [event["outcome"] for event in audit.requests()] == ["denied"]


def test_a_principals_level_precedes_that_of_an_api(make):
    audit = make(level="off", apis={"Heartbeat": "metadata"}, principals={"User:alice": "detail", "User:probe": "off"})
    for name in ("alice", "probe", "bob"):
        connection = audit.connection(KafkaPrincipal(name))
        audit.complete(ping(audit, connection), produced(audit, connection))
    recorded = [(event["principal"], event["api_name"], "resources" in event) for event in audit.requests()]
    assert recorded == [
        ("User:alice", "Heartbeat", True),
        ("User:alice", "Produce", True),
        ("User:bob", "Heartbeat", False),
    ]


@pytest.mark.parametrize(
    "settings",
    [
        {"exclude_principals": ("User:alice",)},
        {"exclude_networks": ("10.0.0.0/8",)},
        {"exclude_client_ids": ("client",)},
        {"apis": {"Heartbeat": "off"}},
    ],
)
def test_exclusions_hide_only_requests_that_succeeded(make, settings):
    audit = make(aggregate_above_per_second=1, **settings)
    connection = audit.connection()
    audit.complete(*(ping(audit, connection) for _ in range(5)))
    audit.complete(produced(audit, connection, error=29))
    audit.observer.authentication_failed(connection, "no", False)
    audit.observer.connection_closed(connection, "closed by peer")
    kinds = [(event["kind"], event["outcome"]) for event in audit.events() if event["kind"] != "connection"]
    assert kinds == [("request", "denied"), ("authentication", "denied")]
