"""Tests that audit events, and the commands that print them, show the old values of configs, quotas and credentials."""

import json

import pytest

from klamm.testing import EmbeddedServer
from klamm.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from klamm.wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from klamm.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from klamm.wire.messages.incremental_alter_configs import AlterableConfig as IncrementalConfig
from klamm.wire.messages.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from klamm.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from klamm.wire.response_errors import first_error
from klamm_spark.queries.event_views import DuckDbViews, Period
from klamm_spark.report.command import answer
from klamm_spark.requests.resources import CONFIG_TYPES
from klamm_spark.terminal.formats import FORMATS
from tests.audit_spool import events_of

SET, DELETE, APPEND = 0, 1, 2
KEYS = {
    "TOPIC": ("t", "retention.ms", "1000", "2000", "3000"),
    "BROKER": ("", "log.retention.ms", "1000", "2000", "3000"),
    "BROKER_LOGGER": ("1", "klamm.broker", "INFO", "DEBUG", "WARN"),
    "CLIENT_METRICS": ("m", "interval.ms", "1000", "2000", "3000"),
    "GROUP": ("g", "consumer.session.timeout.ms", "46000", "47000", "48000"),
}
"""A name, a config and three values of the config, by type of resource."""


def incremental(kind, name, *configs, validate_only=False):
    changes = [IncrementalConfig(*config) for config in configs]
    return IncrementalAlterConfigsRequest([IncrementalResource(kind, name, changes)], validate_only)


def replacing(kind, name, **configs):
    changes = [AlterableConfig(key.replace("_", "."), value) for key, value in configs.items()]
    return AlterConfigsRequest([AlterConfigsResource(kind, name, changes)])


class Audited:
    def __init__(self, folder):
        self.spool = folder / "spool"
        lines = ['observers=["audit"]', f"audit.spool={self.spool}", "audit.node=node-1"]
        self.server = EmbeddedServer([f"listeners.default.{line}" for line in lines]).start()

    def ask(self, *requests):
        """Send requests that must succeed. Return their events, in order."""
        self.server.create_topic("t")
        with self.server._connect() as client:
            for request in requests:
                assert first_error(client.call(request, 1 if request.API_KEY in (44, 49) else 0)) == 0
        self.server.stop()
        return [event for event in events_of(self.spool) if event.get("api_key") in {one.API_KEY for one in requests}]


@pytest.fixture
def audited(tmp_path):
    one = Audited(tmp_path)
    yield one
    one.server.stop()


def changed(event):
    """Return (type, name, attribute, operation, old value, new value) of each attribute with a value."""
    return [
        (one["type"], one["name"], each["name"], each.get("operation"), each.get("old_value"), each.get("new_value"))
        for one in event["resources"]
        for each in one.get("attributes", ())
        if each.keys() & {"old_value", "new_value"}
    ]


@pytest.mark.parametrize(("code", "kind"), CONFIG_TYPES.items(), ids=CONFIG_TYPES.values())
def test_events_of_changed_configs_have_old_and_new_values(audited, code, kind):
    name, key, first, second, third = KEYS[kind]
    events = audited.ask(
        incremental(code, name, (key, SET, first)),
        incremental(code, name, (key, SET, third), validate_only=True),
        incremental(code, name, (key, SET, second)),
        incremental(code, name, (key, DELETE, None)),
    )
    assert [changed(event) for event in events] == [
        [(kind, name, f"config.{key}", "SET", None, first)],
        [],
        [(kind, name, f"config.{key}", "SET", first, second)],
        [(kind, name, f"config.{key}", "DELETE", second, None)],
    ]


def test_configs_that_a_request_changes_implicitly_are_recorded(audited):
    """AlterConfigs deletes the configs that it does not name. APPEND records the whole list as the new value."""
    events = audited.ask(
        incremental(2, "t", ("cleanup.policy", APPEND, "compact"), ("retention.ms", SET, "5")),
        replacing(2, "t", segment_ms="7"),
    )
    assert [sorted(changed(event)) for event in events] == [
        [
            ("TOPIC", "t", "config.cleanup.policy", "APPEND", None, "delete,compact"),
            ("TOPIC", "t", "config.retention.ms", "SET", None, "5"),
        ],
        [
            ("TOPIC", "t", "config.cleanup.policy", "DELETE", "delete,compact", None),
            ("TOPIC", "t", "config.retention.ms", "DELETE", "5", None),
            ("TOPIC", "t", "config.segment.ms", "SET", None, "7"),
        ],
    ]


def quota(key, value, *parts):
    """Return a request that sets a quota, or removes it if the value is None."""
    entity = [RequestEntityData(kind, name) for kind, name in parts]
    return AlterClientQuotasRequest([RequestEntryData(entity, [OpData(key, value or 0.0, value is None)])])


def test_events_of_changed_quotas_have_old_and_new_values(audited):
    """Events name each part of the entity. A user with a client id is another entity than the user alone."""
    both = ("user", "ada"), ("client-id", "c")
    key = "producer_byte_rate"
    events = audited.ask(
        quota(key, 1000.0, *both), quota(key, 7.0, both[0]), quota(key, 2000.0, *both), quota(key, None, *both)
    )
    name = f"quota.{key}"
    assert [changed(event) for event in events] == [
        [(kind, of, name, "SET", None, "1000.0") for kind, of in (("USER", "ada"), ("CLIENT_ID", "c"))],
        [("USER", "ada", name, "SET", None, "7.0")],
        [(kind, of, name, "SET", "1000.0", "2000.0") for kind, of in (("USER", "ada"), ("CLIENT_ID", "c"))],
        [(kind, of, name, "DELETE", "2000.0", None) for kind, of in (("USER", "ada"), ("CLIENT_ID", "c"))],
    ]


def test_events_of_changed_credentials_have_iterations_and_no_secret(audited):
    salt, password = b"salt-of-ada", b"password-of-ada-0123456789012345"
    set_to = [
        AlterUserScramCredentialsRequest([], [ScramCredentialUpsertion("ada", 1, iterations, salt, password)])
        for iterations in (4096, 8192)
    ]
    events = audited.ask(*set_to, AlterUserScramCredentialsRequest([ScramCredentialDeletion("ada", 1)], []))
    assert [changed(event) for event in events] == [
        [("USER", "ada", "iterations", None, None, "4096")],
        [("USER", "ada", "iterations", None, "4096", "8192")],
        [("USER", "ada", "iterations", "DELETE", "8192", None)],
    ]
    assert "key" not in json.dumps([event["resources"] for event in events])


def test_every_command_that_prints_events_shows_old_and_new_values(audited):
    events = audited.ask(
        incremental(2, "t", ("retention.ms", SET, "5")), incremental(2, "t", ("retention.ms", SET, "6"))
    )
    assert " TOPIC:t config.retention.ms:5->6" in FORMATS["text"](events[1])
    assert " flexString1=TOPIC:t config.retention.ms:(unset)->5" in FORMATS["cef"](events[0])
    rendered = json.loads(FORMATS["ocsf"](events[1]))
    (attribute,) = rendered["resources"][0]["data"]["attributes"]
    assert (attribute["old_value"], attribute["new_value"]) == ("5", "6")
    views = DuckDbViews(audited.spool, Period())
    try:
        rows = [row for row in answer(views, "here").tables["changes"].rows if "IncrementalAlterConfigs" in row]
        assert "TOPIC t (config.retention.ms: (unset) -> 5)" in str(rows[0])
        assert "TOPIC t (config.retention.ms: 5 -> 6)" in str(rows[1])
    finally:
        views.close()
