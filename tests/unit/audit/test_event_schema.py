"""The schema, the documentation and the code agree, and events of earlier versions stay readable."""

import json
import re
from pathlib import Path

import jsonschema
import pytest

import klamm_spark
from klamm_spark.events.event import (
    ACTIONS,
    ATTRIBUTE_FIELDS,
    DUCKDB_TYPES,
    FIELD_NAMES,
    FIELDS,
    LISTS,
    OUTCOMES,
    REQUEST_OUTCOMES,
    RESOURCE_FIELDS,
    SCHEMA_VERSION,
    json_schema,
    markdown_table,
)
from klamm_spark.spool.layout import Seal, is_sealed, parse_name, sealed_segments
from tests.audit_samples import main, sample_events

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(__file__).parent / "data"
SCHEMA_FILE = Path(klamm_spark.__file__).parent / "events" / "schema" / f"audit_event.v{SCHEMA_VERSION}.json"


@pytest.fixture(scope="module")
def validator():
    return jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text()))


def test_the_schema_has_the_kinds_and_the_version_of_the_code():
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["kind"]["enum"] == list(ACTIONS)
    assert schema["properties"]["schema_version"]["const"] == SCHEMA_VERSION
    assert schema["$id"] == f"urn:klamm:audit-event:v{SCHEMA_VERSION}"
    assert {kind for field in FIELDS for kind in field.kinds} == set(ACTIONS)
    assert set(REQUEST_OUTCOMES) < set(OUTCOMES)


@pytest.mark.parametrize("fields", [FIELDS, RESOURCE_FIELDS, ATTRIBUTE_FIELDS], ids=len)
def test_every_field_has_a_type_that_readers_know_and_a_meaning(fields):
    assert {field.type for field in fields} <= {*DUCKDB_TYPES, *LISTS}
    assert all(field.doc.endswith((".", "…")) for field in fields)


def test_no_object_of_an_event_may_have_further_fields():
    schema = json_schema()
    resource = schema["properties"]["resources"]["items"]
    objects = (schema, resource, resource["properties"]["attributes"]["items"])
    assert [each["additionalProperties"] for each in objects] == [False] * 3


def test_the_page_lists_every_field():
    page = (ROOT / "docs" / "audit" / "reference.md").read_text()
    assert markdown_table(FIELDS) in page
    assert markdown_table(RESOURCE_FIELDS) in page


def test_the_quick_starts_example_is_an_event(validator):
    (example,) = re.findall(r"^```json\n(.*?)^```", (ROOT / "docs" / "audit" / "README.md").read_text(), re.M | re.S)
    validator.validate(json.loads(example))


def test_names_are_unique_and_snake_case():
    assert len(set(FIELD_NAMES)) == len(FIELDS)
    assert all(name == name.lower() and name.replace("_", "").isalnum() for name in FIELD_NAMES)


def test_samples_are_valid_and_of_every_kind(validator):
    events = list(sample_events(3000))
    assert [error.message for event in events for error in validator.iter_errors(event)] == []
    assert {event["kind"] for event in events} == set(ACTIONS)
    assert events == list(sample_events(3000)), "the same for the same arguments"


def test_a_stored_spool_of_version_1_is_valid_and_has_the_same_meaning():
    """The first version wrote this spool. It must stay readable for ever."""
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.with_name("audit_event.v1.json").read_text()))
    events = [json.loads(line) for line in (DATA / "events.v1.jsonl").read_text().splitlines()]
    assert [error.message for event in events for error in validator.iter_errors(event)] == []
    assert {event["kind"] for event in events} == set(ACTIONS)
    assert {name for event in events for name in event} <= set(FIELD_NAMES)
    assert {event["schema_version"] for event in events} == {1}
    # The later schema only has additional fields.
    later = jsonschema.Draft202012Validator(json_schema())
    raised = [{**event, "schema_version": SCHEMA_VERSION} for event in events]
    assert [error.message for event in raised for error in later.iter_errors(event)] == []


@pytest.mark.parametrize(
    "change",
    [{"kind": "other"}, {"outcome": "fine"}, {"seq": -1}, {"api_key": "0"}, {"password": "x"}, {"schema_version": 99}],
)
def test_lines_that_are_not_events_are_refused(validator, change):
    event = {**next(iter(sample_events(1))), **change}
    assert not validator.is_valid(event)


def test_a_sample_spool_has_segments_and_seals(tmp_path):
    main([str(tmp_path), "--events", "100", "--events-per-segment", "40", "--node", "n"])
    paths = sealed_segments(tmp_path / "n")
    assert [parse_name(path.name).first_seq for path in paths] == [0, 40, 80]
    assert [Seal.read(path.with_suffix(".seal")).events for path in paths] == [40, 40, 20]


@pytest.mark.parametrize(
    ("name", "sealed"),
    [
        ("0190-00000000000000000007.jsonl", True),
        ("0190-00000000000000000007.jsonl.zst", True),
        ("0190-00000000000000000007.open", False),
        ("0190-00000000000000000007.seal", False),
        ("0190-7.jsonl", False),
        (".lock", False),
        ("notes.jsonl", False),
    ],
)
def test_is_sealed_recognizes_the_names_of_sealed_segments(name, sealed):
    assert is_sealed(name) is sealed


def test_a_file_that_is_no_seal_is_refused(tmp_path):
    (tmp_path / "x.seal").write_text('{"node": "n"}')
    with pytest.raises(ValueError, match="x.seal"):
        Seal.read(tmp_path / "x.seal")
