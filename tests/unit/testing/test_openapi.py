"""Tests of the OpenAPI description of the HTTP control API: it has every request, and answers match it."""

import http.client
import json
import re
from dataclasses import fields
from typing import get_args
from urllib.parse import quote, urlencode

import pytest

from klamm.testing import CertificateFiles, EmbeddedServer, MovingClock, RawClient
from klamm.testing.secure import secure_settings
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm_control import values
from klamm_control.every_action import ACTIONS
from klamm_control.openapi import ERRORS, Description
from klamm_faults.kinds import FaultKind
from klamm_faults.rule import RuleSettings
from tools import generate_control

DOCUMENT = json.loads(json.dumps(Description(ACTIONS).document))
OPERATIONS = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
SCHEMAS = DOCUMENT["components"]["schemas"]
# Operations that are not in this table are called without options.
OPTIONS = {
    "createTopic": {"name": "made", "partitions": 1, "configs": {"retention.ms": 1000}},
    "produce": {"values": ["three", None], "key": "k"},
    "consume": {"count": 1, "isolation": "read_uncommitted", "partition": 0, "offset": 1, "encoding": "base64"},
    "addFault": {"kind": "delay", "api": "Fetch", "delay_ms": 5, "probability": 0.5, "name": "other"},
    "fault": {"wait": 0},
    "setNode": {"running": True},
    "moveLeader": {"partition": 0, "node": 1},
    "moveCoordinator": {"node": 1},
    "requests": {"api": "FindCoordinator", "count": 1},
    "advanceMs": {"advance_ms": 5},
    "timeline": {"title": "one", "failure": "it failed", "columns": 100},
    "group": {"state": "Empty", "members": 0, "lag": 1},
    "chaos": {"seed": 7, "times": 2},
    "addUser": {"name": "alice"},
    "allow": {"user": "alice", "operation": "READ", "resource_type": "TOPIC", "name": "orders"},
    "deny": {"user": "alice", "operation": "WRITE", "resource_type": "TOPIC", "name": "orders"},
    "acls": {"user": "alice"},
    "clearAcls": {"user": "alice"},
    "clientSettings": {"user": "admin"},
}
PLACES = {"topic": "orders", "name": "mine", "node": "1", "key": "g", "group": "readers", "client": "go"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    files = CertificateFiles(tmp_path_factory.mktemp("tls"))
    control = ['server.extensions=["control"]', "control.token=sesame", f"control.ca_file={files.ca}"]
    with EmbeddedServer(
        [*secure_settings(files), *control], faults=True, recording=True, clock=MovingClock()
    ) as server:
        yield server


@pytest.fixture
def call(server):
    """Return a function that sends an operation to a server with a topic, a fault and a recorded request."""
    (extension,) = server.server.extensions
    connection = http.client.HTTPConnection(extension.url.removeprefix("http://"), timeout=60)
    server.reset()
    server.create_topic("orders")
    server.produce("orders", "one", "two")
    server.admin.call(
        OffsetCommitRequest(
            "readers",
            topics=[
                OffsetCommitRequestTopic("orders", partitions=[OffsetCommitRequestPartition(0, committed_offset=1)])
            ],
        ),
        8,
    )
    server.faults.add("delay", api="Fetch", delay_ms=5, name="mine")
    with RawClient(server.address(), client_id="mine") as client:
        client.call(FindCoordinatorRequest("g"), 1)

    def call(name, options):
        method, path, _ = OPERATIONS[name]
        path = re.sub(r"{(\w+)}", lambda found: quote(PLACES[found[1]], safe=""), path)
        content = json.dumps(options) if method == "POST" and options else None
        if content is None and options:
            path = f"{path}?{urlencode(options)}"
        connection.request(method, path, content, {"Authorization": "Bearer sesame"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    yield call
    connection.close()


def test_the_server_serves_its_description(call):
    assert call("openapi", {}) == (200, DOCUMENT)


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_request_is_answered_as_described(call, name):
    status, answer = call(name, OPTIONS.get(name, {}))
    assert status == 200, answer
    schema = OPERATIONS[name][2]["responses"]["200"]["content"]["application/json"]["schema"]
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator({**schema, "components": DOCUMENT["components"]}).validate(answer)


def test_each_operation_of_the_server_is_described(server):
    """The server finds its operations itself. A class outside the list would be neither served nor described."""
    (extension,) = server.server.extensions
    served = [(one.method, one.path) for _, one in extension._http.operations]
    assert sorted(served) == sorted((method, path) for method, path, _ in OPERATIONS.values())
    assert len(OPERATIONS) == len(served), "each has a name of its own"


def test_the_cases_contain_every_option(call):
    """The test of answers sends each of these options."""
    for name, (_, _, operation) in OPERATIONS.items():
        described = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"}
        if "requestBody" in operation:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            schema = SCHEMAS[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
            described |= set(schema.get("required", schema["properties"]))
        tried = set(OPTIONS.get(name, ()))
        assert (described - tried) <= {"timeout_s", "wait"}, name


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("consume", {"count": "many"}, '"count" must be an integer, not "many"'),
        ("consume", {"timeout_s": "nan"}, '"timeout_s" must be a number, not NaN'),
        ("consume", {"isolation": "no"}, '"isolation" must be one of read_committed, read_uncommitted, not "no"'),
        ("consume", {"cuont": 1}, 'there is no "cuont" here; did you mean "count"?'),
        ("createTopic", {"partitions": "2"}, '"partitions" must be an integer, not "2"'),
        ("createTopic", {"partitions": True}, '"partitions" must be an integer, not true'),
        ("createTopic", {"configs": []}, '"configs" must be an object, not []'),
        ("produce", {"values": "one"}, '"values" must be an array, not "one"'),
        ("produce", {"values": [1]}, '"values" has an element that must be a string, not 1'),
        ("addFault", {"kind": "eror"}, None),
        ("addFault", {"kind": "delay", "api": ["Fetch", 1]}, '"api" has an element that must be a string, not 1'),
        ("setNode", {"running": 1}, '"running" must be true or false, not 1'),
    ],
)
def test_a_value_of_another_type_is_refused(call, name, options, said):
    status, answer = call(name, options)
    assert status == 400
    assert said is None or answer == {"error": said}


def test_a_fault_is_described_as_the_filter_takes_it():
    assert set(SCHEMAS["FaultRule"]["properties"]) == {one.name for one in fields(RuleSettings)} | {"name"}
    assert get_args(values.FaultKind) == tuple(kind.value for kind in FaultKind)


def test_references_of_the_description_exist():
    found = set(re.findall(r'"\$ref": "#/components/(\w+)/(\w+)"', json.dumps(DOCUMENT)))
    assert {(kind, name) for kind in ("schemas", "responses") for name in DOCUMENT["components"][kind]} == found
    assert set(ERRORS) == {*DOCUMENT["components"]["responses"], "405"}


def test_the_page_is_up_to_date():
    assert generate_control.PAGE.read_text(encoding="utf-8") == generate_control.page(), (
        "run python tools/generate_control.py"
    )
