"""Events in the formats of other log systems, as their own tools read them: every kind, every action, every API."""

import json
import re
import sys
from pathlib import Path

import pycef
import pytest
from cefevent import CEFEvent
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from klamm.wire.api_keys import ApiKey, spec_of
from klamm_spark.events.other_names import CUSTOM, TABLE, markdown_table
from klamm_spark.events.renderers import ocsf, timestamp
from klamm_spark.terminal.formats import FORMATS
from tests.audit_samples import sample_events
from tests.unit.audit.test_renderers import VECTORS, ocsf_validators  # noqa: F401

ROOT = Path(__file__).parents[3]
LONG = "x" * 256
RECORDED = [vector["event"] for vector in VECTORS]
REQUEST = next(one for one in RECORDED if one["kind"] == "request" and one["action"] == "completed")
APIS = [{**REQUEST, "api_key": int(key), "api_name": spec_of(key).name} for key in ApiKey]
HOSTILE = [
    {
        **one,
        **{key: f'{LONG}=|\\\n]" \u2028\x7f' for key in ("client_id", "principal", "reason", "detail") if key in one},
        **({"client_address": "2001:db8::1"} if "client_address" in one else {}),
    }
    for one in RECORDED
]
EVENTS = [*RECORDED, *APIS, *HOSTILE, *sample_events(100)]
ECS_TYPES = {
    "api": {"access", "admin", "allowed", "change", "creation", "deletion", "denied", "end", "info", "start", "user"},
    "authentication": {"start", "end", "info"},
    "configuration": {"access", "change", "creation", "deletion", "info"},
    "network": {"access", "allowed", "connection", "denied", "end", "info", "protocol", "start"},
}
"""The types that ECS expects of an event of a category."""
ECS_FIXED = "@timestamp ecs.version event.kind event.category event.type event.outcome event.module event.dataset "
ECS_FIXED += "observer.vendor observer.product service.type network.transport network.protocol related.user related.ip "
ECS_FIXED += "tls.version_protocol"


ECS_NAMES = {names.field: names.ecs for names in TABLE if names.ecs}


def paths(document, before=""):
    for name, value in document.items():
        if isinstance(value, dict) and f"{before}{name}" != CUSTOM:
            yield from paths(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def test_ocsf_has_every_api(ocsf_validators):  # noqa: F811
    for event in EVENTS:
        rendered = ocsf(event)
        assert list(ocsf_validators[rendered["class_uid"]].iter_errors(rendered)) == [], event


def test_ecs_events_have_the_names_and_categories_of_ecs():
    known = {*ECS_FIXED.split(), *(names.ecs for names in TABLE if names.ecs), CUSTOM}
    for event in EVENTS:
        document = json.loads(FORMATS["ecs"](event))
        found = dict(paths(document))
        assert found.keys() <= known
        assert found["@timestamp"] == timestamp(event)
        assert found["event.outcome"] in ("success", "failure", "unknown")
        if event["kind"] == "audit_gap":
            assert (found["event.kind"], found["event.type"]) == ("pipeline_error", ["error"])
        else:
            (category,) = found["event.category"]
            assert set(found["event.type"]) <= ECS_TYPES[category]
        for name in event.keys() - {"schema_version", "boot", "kind", "time_us", "error_code"}:
            assert ECS_NAMES.get(name) in found or name in found[CUSTOM]


def test_cef_is_read_by_other_parsers():
    for event in EVENTS:
        line = FORMATS["cef"](event)
        read = pycef.parse(line)
        assert (read["DeviceVendor"], read["DeviceEventClassID"]) == ("klamm", f"{event['kind']}.{event['action']}")
        if event not in HOSTILE:
            assert read.get("externalId") == event["event_id"]
            assert read.get("clientId", "") == event.get("client_id", "")
        checked = CEFEvent(strict=True)
        for key, value in re.findall(r"(\w+)=((?:\\.|[^=\\])*?)(?= \w+=|$)", line.split("|", 7)[7]):
            # The dictionary lacks `outcome`, which the standard has.
            assert key == "outcome" or checked.set_field(key, int(value) if value.isdigit() else value) is not False


@pytest.mark.once
@pytest.mark.skipif(sys.version_info >= (3, 15), reason="the parser of others does not run on it")
def test_syslog_is_read_by_another_parser():
    from syslog_rfc5424_parser import SyslogMessage

    for event in EVENTS:
        read = SyslogMessage.parse(FORMATS["syslog"](event))
        assert (read.facility.name, read.appname, read.timestamp) == ("audit", "klamm", timestamp(event))
        assert (read.hostname, read.procid, read.msgid) == (event["node"], event["boot"], event["action"])
        assert json.loads(read.msg) == event


def test_otlp_is_read_with_opentelemetrys_own_messages():
    for event in EVENTS:
        request = json_format.Parse(FORMATS["otlp"](event), ExportLogsServiceRequest())
        (record,) = request.resource_logs[0].scope_logs[0].log_records
        found = {one.key: one.value for one in record.attributes}
        assert record.time_unix_nano == event["time_us"] * 1000
        assert found["log.record.uid"].string_value == event["event_id"]
        assert len(found) >= len(event) - 2
        if "resources" in event:
            assert len(found["klamm.resources"].array_value.values) == len(event["resources"])


def test_splunk_events_have_the_keys_of_its_collector():
    for event in EVENTS:
        document = json.loads(FORMATS["splunk"](event))
        assert document.keys() == {"time", "host", "source", "sourcetype", "event"}
        assert document["event"] == event
        assert document["time"] == pytest.approx(event["time_us"] / 1e6, abs=1e-6)


def test_the_page_has_the_table():
    assert markdown_table() in (ROOT / "docs" / "audit" / "reference.md").read_text()
