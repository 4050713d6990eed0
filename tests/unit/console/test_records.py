"""Tests of the console's page of records: browsing, schemas, and hostile values."""

import http.client
import io
import json
import urllib.parse

import pytest

from klamm.testing import EmbeddedServer
from klamm.wire.compression import Codec
from klamm.wire.messages import produce
from klamm.wire.records import Record, encode_batch
from klamm_console import avro, records, schemas
from tests.unit.console.conftest import CONSOLE, HOSTILE, Browser


def test_records_are_shown_by_offset_time_and_from_the_end(browser, server):
    server.create_topic("t")
    for number in range(100):
        server.produce("t", f'{{"number": {number}}}', key=f"k{number}", timestamp_ms=1_000 + number)
    shown = browser("records?name=t")[1]
    assert [shown["records"][0]["offset"], shown["next_offset"], shown["end_offset"]] == [50, 100, 100]
    assert shown["records"][0]["value"] == {"bytes": 14, "cut": False, "as": "text", "text": '{"number": 50}'}
    assert [each["offset"] for each in browser("records?name=t&offset=7&limit=2")[1]["records"]] == [7, 8]
    assert browser("records?name=t&timestamp_ms=1042")[1]["records"][0]["offset"] == 42
    assert browser("records?name=t&offset=200")[1]["records"] == []


def test_any_bytes_can_be_shown(browser, server):
    server.create_topic("t")
    values = [
        b"\xff\0",
        None,
        b"",
        HOSTILE,
        "x" * 100_000,
        "\u00e9" * 50_000,
        b"\0\0\0\0\x07abc",
        "[" * 20_000,
        "[NaN, 12345678901234567890]",
        b"\xff\0\1" * 9_000,
    ]
    server.produce("t", *values, key=HOSTILE, headers=[(HOSTILE, None)])
    shown = [each["value"] for each in browser("records?name=t")[1]["records"]]
    assert shown[0] == {"bytes": 2, "cut": False, "as": "hex", "text": "ff 00"}
    assert shown[1] is None
    assert shown[3]["text"] == HOSTILE
    assert (shown[4]["cut"], len(shown[4]["text"])) == (True, 16 * 1024)
    assert shown[5]["as"] == "text"
    assert shown[6]["schema_id"] == 7
    assert [shown[7]["as"], shown[8]["text"]] == ["text", "[NaN, 12345678901234567890]"]
    assert shown[9]["as"] == "hex"


def register(server, subject, schema, kind="AVRO"):
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(server.schema_registry_url).netloc, timeout=30)
    body = json.dumps({"schema": json.dumps(schema), "schemaType": kind})
    connection.request("POST", f"/subjects/{subject}/versions", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = json.loads(answer.read())
    connection.close()
    assert answer.status == 200, content
    return content["id"]


def written(number, data):
    return b"\0" + number.to_bytes(4, "big") + data


ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "price", "type": "double"},
        {"name": "paid", "type": "boolean"},
        {"name": "next", "type": ["null", "Order"]},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
    ],
}
ONE = {
    "id": -3,
    "kind": "OLD",
    "tags": ["a", "\u00e9"],
    "counts": {"x": 7},
    "price": 1.5,
    "paid": True,
    "hash": b"\1\2",
}


def avro_of(schema, value):
    fastavro = pytest.importorskip("fastavro")
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(schema), value)
    return target.getvalue()


def test_records_are_decoded_by_their_schema():
    pytest.importorskip("jsonschema")
    data = avro_of(ORDER, ONE | {"next": ONE | {"next": None}})
    with EmbeddedServer(['server.extensions=["schema_registry", "console"]', CONSOLE[1]]) as server:
        order = register(server, "orders-value", ORDER)
        schema = register(server, "json-value", {"type": "object"}, "JSON")
        server.create_topic("t")
        values = [written(order, data), written(schema, b'{"a": 1}'), written(999, b"x"), written(order, data[:-1])]
        server.produce("t", *values, key=written(order, data))
        browser = Browser(server)
        browser.log_in()
        records = browser("records?name=t")[1]["records"]
    shown = ONE | {"hash": "01 02"}
    assert (records[0]["value"]["as"], records[0]["value"]["schema_id"]) == ("Avro", order)
    assert json.loads(records[0]["value"]["text"]) == shown | {"next": shown | {"next": None}}
    assert records[0]["key"]["text"] == records[0]["value"]["text"]
    assert (records[1]["value"]["as"], records[1]["value"]["text"]) == ("JSON", '{"a": 1}')
    assert records[2]["value"]["note"] == "the registry answers 404 to the question for the schema 999"
    assert (records[2]["value"]["as"], records[2]["value"]["text"]) == ("hex", "00 00 00 03 e7 78")
    assert records[3]["value"]["note"] == "the data ends too early"


def test_without_a_registry_the_page_says_so(browser, server):
    server.create_topic("t")
    server.produce("t", written(1, b"abc"))
    (record,) = browser("records?name=t")[1]["records"]
    assert "[console] schema_registry" in record["value"]["note"]
    assert (record["value"]["as"], record["value"]["text"]) == ("text", "\0\0\0\0\1abc")


LONG = "n" * 500_000
BOMBS = {
    "an array of nulls": ({"type": "array", "items": "null"}, b"\xfe" + b"\xff" * 7 + b"\x7f"),
    "a list in itself": (
        {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]},
        b"\2" * 50_000 + b"\0",
    ),
    "a record in itself": ({"type": "record", "name": "L", "fields": [{"name": "next", "type": "L"}]}, b""),
    "a number that does not end": ("long", b"\xff" * 100_000),
    "a size below nothing": ("string", b"\1"),
    "an index below nothing": ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\1"),
    "a long namespace": ({"type": "record", "name": "L", "namespace": "n" * 60_000, "fields": []}, b""),
    "no such branch": (["null"], b"\x7f"),
    "a type that is a number": (7, b""),
    "a type that is not known": ("Missing", b""),
    "a name that is a list": ({"type": "record", "name": "L", "fields": [{"name": [], "type": "null"}]}, b""),
}


@pytest.mark.parametrize("name", BOMBS)
def test_hostile_data_and_schemas_are_refused_in_bounds(name):
    schema, data = BOMBS[name]
    with pytest.raises(ValueError, match=r"data|schema|nested|parts|number"):
        avro.decoded(schema, avro.names_of(schema), data, avro.Steps(10_000))


def test_a_large_value_is_not_decoded():
    known = schemas.Schemas(lambda: "http://127.0.0.1:1")
    known.find = lambda _url, _number: schemas.Schema("AVRO", '"bytes"')
    data = avro_of("bytes", bytes(1 << 20))
    with pytest.raises(ValueError, match="too large"):
        known.page().decoded(1, data, 1_000)


def test_a_value_of_zeros_has_no_schema(browser, server):
    server.create_topic("t")
    server.produce("t", bytes(8))
    (record,) = browser("records?name=t")[1]["records"]
    assert record["value"] == {"bytes": 8, "cut": False, "as": "text", "text": "\0" * 8}


def test_long_names_are_cut_in_messages(monkeypatch):
    schema = {"type": "array", "items": {"type": "enum", "name": "E", "symbols": [LONG]}}
    known = schemas.Schemas(lambda: "http://127.0.0.1:1")
    content = schemas.Schema("AVRO", json.dumps(schema))
    monkeypatch.setattr(known, "find", lambda _url, _number: content)
    many = 10_000
    data = b"\xa0\x9c\1" + bytes(many) + b"\0"
    kind, text = known.page().decoded(1, data, 1_000)
    assert kind == "Avro"
    assert len(text) < 2 * len(LONG)


def test_the_memory_for_unpacked_records_is_limited(browser, server):
    server.create_topic("t")
    batch = bytes(encode_batch([Record(timestamp_ms=1, value=bytes(65_000))] * 100, codec=Codec.GZIP))
    for _ in range(10):
        data = produce.TopicProduceData("t", partition_data=[produce.PartitionProduceData(0, batch)])
        answer = server.admin.call(produce.ProduceRequest(None, -1, 10_000, [data]), 8)
        assert answer.responses[0].partition_responses[0].error_code == 0
    records, following = server.admin.fetch("t", 0, 0, limit=10**9)
    assert sum(len(each.value) for each in records) < 20 << 20
    assert following == records[-1].offset + 1
    assert len(browser("records?name=t&offset=0&limit=7")[1]["records"]) == 7


def test_records_are_found_by_their_key(browser, server):
    server.create_topic("t")
    for number in range(30):
        server.produce("t", f"value {number}", key=f"k{number % 3}")
    shown = browser("records?name=t&key=k1")[1]
    assert [each["offset"] for each in shown["records"]] == list(range(1, 30, 3))
    assert (shown["searched"], shown["next_offset"]) == (True, 30)
    page = browser("records?name=t&key=k1&offset=5&limit=2")[1]
    assert ([each["offset"] for each in page["records"]], page["next_offset"]) == ([7, 10], 11)
    assert browser("records?name=t&key=absent")[1]["records"] == []
    assert browser("records?name=t&key=%ED%A0%80x")[0] in (200, 400)


def test_one_search_for_a_key_is_limited(browser, server, monkeypatch):
    monkeypatch.setattr(records, "_SEARCHED_FETCHES", 2)
    monkeypatch.setattr(records, "_SEARCHED_RECORDS", 10)
    server.create_topic("t")
    server.produce("t", *["x"] * 30, key="other")
    server.produce("t", "y", key="wanted")
    shown = browser("records?name=t&key=wanted")[1]
    assert (shown["records"], shown["next_offset"], shown["end_offset"]) == ([], 20, 31)
    (found,) = browser(f"records?name=t&key=wanted&offset={shown['next_offset']}")[1]["records"]
    assert found["value"]["text"] == "y"
