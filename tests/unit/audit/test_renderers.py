"""Compares the output of renderers with stored vectors, and checks it with the standards' own tools."""

import json
from pathlib import Path

import jsonschema
import pytest
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema

from klamm_spark.events.event import ACTIONS
from klamm_spark.events.renderers import RENDERERS, cloudevents, kip673, ocsf, timestamp
from klamm_spark.terminal.formats import FORMATS
from tests.audit_samples import sample_events

VECTORS = json.loads((Path(__file__).parent / "data" / "renderings.json").read_text())
OCSF_CLASSES = {
    0: "base_event",
    3002: "authentication",
    4001: "network_activity",
    6002: "application_lifecycle",
    6003: "api_activity",
}


@pytest.fixture(scope="module")
def ocsf_validators():
    schema = OcsfJsonSchemaEmbedded(get_ocsf_schema("1.8.0"))
    return {uid: jsonschema.Draft202012Validator(schema.get_class_schema(name)) for uid, name in OCSF_CLASSES.items()}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector['event']['kind']}-{vector['event']['action']}")
@pytest.mark.parametrize("name", ["kip673", "cloudevents", "ocsf"])
def test_renderings_equal_the_stored_vectors(vector, name):
    assert RENDERERS[name](vector["event"]) == vector[name]


def test_the_vectors_have_every_kind_and_action():
    assert {(vector["event"]["kind"], vector["event"]["action"]) for vector in VECTORS} == {
        (kind, action) for kind, actions in ACTIONS.items() for action in actions
    }


def test_ocsf_is_valid_by_the_schema_of_its_version(ocsf_validators):
    events = [*(vector["event"] for vector in VECTORS), *sample_events(1000)]
    for event in events:
        rendered = ocsf(event)
        problems = [error.message for error in ocsf_validators[rendered["class_uid"]].iter_errors(rendered)]
        assert problems == [], event
        assert rendered["type_uid"] == rendered["class_uid"] * 100 + rendered["activity_id"]


def test_cloudevents_are_read_by_their_sdk():
    for vector in VECTORS:
        rendered = cloudevents(vector["event"])
        read = JSONFormat().read(CloudEvent, json.dumps(rendered))
        assert (read.get_id(), read.get_type()) == (rendered["id"], rendered["type"])
        assert read.get_time().timestamp() * 1e6 == pytest.approx(vector["event"]["time_us"])
        assert read.get_data() == vector["event"]


def test_kip673_has_the_keys_of_kafkas_request_log_for_requests_only():
    rendered = [kip673(vector["event"]) for vector in VECTORS]
    requests = [one for one in rendered if one is not None]
    assert len(requests) == sum(vector["event"]["action"] == "completed" for vector in VECTORS)
    for one in requests:
        assert set(one) == {
            "isForwarded",
            "requestHeader",
            "request",
            "response",
            "connection",
            "totalTimeMs",
            "requestQueueTimeMs",
            "localTimeMs",
            "remoteTimeMs",
            "throttleTimeMs",
            "responseQueueTimeMs",
            "sendTimeMs",
            "securityProtocol",
            "principal",
            "listener",
            "clientInformation",
        }


def test_times_keep_their_microseconds():
    assert timestamp({"time_us": 1_767_225_600_000_001}) == "2026-01-01T00:00:00.000001Z"


def test_a_failed_login_names_the_account_that_was_claimed():
    (event,) = (
        one["event"]
        for one in VECTORS
        if one["event"]["action"] == "failure" and one["event"]["kind"] == "authentication"
    )
    event = {**event, "principal": "User:ANONYMOUS", "attempted_principal": "User:ada"}
    assert ocsf(event)["user"] == {"name": "ada", "uid": "User:ada"}
    assert " suser=User:ada " in FORMATS["cef"](event)
    del event["attempted_principal"]
    assert ocsf(event)["user"]["uid"] == "User:ANONYMOUS"


def test_ocsf_has_decisions_and_the_rules_that_decided(ocsf_validators):
    decision = {"operation": "CREATE", "granted": True, "decided_by": "acl", "acl_principal": "User:*"}
    event = next(one["event"] for one in VECTORS if one["event"].get("api_name"))
    event = {**event, "resources": [{"type": "CLUSTER", "name": "kafka-cluster", **decision}]}
    rendered = ocsf(event)
    assert rendered["resources"] == [{"type": "CLUSTER", "name": "kafka-cluster", "data": decision}]
    assert list(ocsf_validators[rendered["class_uid"]].iter_errors(rendered)) == []


def test_a_line_of_text_has_the_listener():
    for vector in VECTORS:
        listener = vector["event"].get("listener")
        assert (f" listener={listener}" in FORMATS["text"](vector["event"])) is (listener is not None)
