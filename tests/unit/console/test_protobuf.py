"""Tests of the console's page of records with Protocol Buffers: real serializers, hostile values and schemas."""

import base64
import contextlib
import gc
import json
import sys

import pytest

pytest.importorskip("google.protobuf")
pytest.importorskip("grpc_tools", reason="needs the extra registry", exc_type=ImportError)

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.testing import EmbeddedServer
from klamm_console import schemas
from klamm_console.avro import Steps
from klamm_console.protobuf import ProtobufSchema
from klamm_schema_registry.protobuf.compiling import compiled
from tests.unit.console.conftest import CONSOLE, Browser

MONEY = """syntax = "proto3";
package shop;
message Money { int64 units = 1; string currency = 2; }
"""
ORDER = """syntax = "proto3";
package shop;
import "shop/money.proto";
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Kind { NEW = 0; OLD = 1; }
message Other { string text = 1; }
message Order {
  message Line {
    message Part { uint32 number = 1; }
    repeated Part parts = 1;
  }
  uint64 id = 1;
  sint64 below = 2;
  fixed32 small = 3;
  sfixed64 large = 4;
  double price = 5;
  bool paid = 6;
  bytes hash = 7;
  Kind kind = 8;
  repeated Kind kinds = 9;
  map<string, Money> sums = 10;
  map<bool, bytes> flags = 11;
  oneof place { string street = 12; Money shop = 13; }
  optional string note = 14;
  repeated Line lines = 15;
  Order next = 16;
  repeated float rates = 17;
  google.protobuf.Timestamp at = 18;
  google.protobuf.Duration within = 19;
  google.protobuf.Struct more = 20;
  google.protobuf.Int64Value count = 21;
  google.protobuf.Any any = 22;
}
"""
IMPORTS = {"shop/money.proto": MONEY}
ORDER_INDEX = b"\2\2"
PLAIN = {
    "id": 0,
    "below": 0,
    "small": 0,
    "large": 0,
    "price": 0.0,
    "paid": False,
    "hash": "",
    "kind": "NEW",
    "kinds": [],
    "sums": {},
    "flags": {},
    "lines": [],
    "rates": [],
}


def descriptor(file):
    return base64.b64encode(file.SerializeToString()).decode()


@pytest.fixture(scope="module")
def files():
    own, imported = compiled(ORDER, IMPORTS)
    return {each.name: each for each in (*imported, own)}


@pytest.fixture(scope="module")
def kinds(files):
    """Return the classes of messages, like generated code, by their names."""
    pool = DescriptorPool()
    for each in files.values():
        pool.Add(each)
    names = ("Order", "Order.Line", "Order.Line.Part", "Other", "Money")
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}")) for name in names}


@pytest.fixture(scope="module")
def schema(files):
    return ProtobufSchema(
        (descriptor(files["klamm_schema.proto"]), [("shop/money.proto", "money", 3)]),
        lambda subject, version: {("money", 3): (descriptor(files["shop/money.proto"]), ())}[subject, version],
    )


def schema_of(text, lacking=()):
    own, imported = compiled(text, {})
    kept = {each.name: each for each in imported if each.name not in lacking}
    references = [(name, name, 1) for name in kept]
    return ProtobufSchema((descriptor(own), references), lambda name, _version: (descriptor(kept[name]), ()))


def full_order(kinds):
    order = kinds["Order"](
        id=2**64 - 1,
        below=-(2**63),
        small=7,
        large=-9,
        price=1.5,
        paid=True,
        hash=b"\0\xff",
        kind=1,
        kinds=[1, 0, 17],
        sums={"a": kinds["Money"](units=2**62, currency="€")},
        flags={True: b"\1"},
        shop=kinds["Money"](units=3),
        note="",
        lines=[kinds["Order.Line"](parts=[kinds["Order.Line.Part"](number=5)])],
        next=kinds["Order"](street="Main"),
        rates=[0.5, 2.0],
    )
    order.at.FromJsonString("2026-11-28T12:00:00.5Z")
    order.within.FromJsonString("90s")
    order.more.update({"deep": {"list": [1, "x", None]}})
    order.count.value = 2**60
    order.any.Pack(kinds["Money"](units=1))
    return order


FULL = {
    "id": 2**64 - 1,
    "below": -(2**63),
    "small": 7,
    "large": -9,
    "price": 1.5,
    "paid": True,
    "hash": "00 ff",
    "kind": "OLD",
    "kinds": ["OLD", "NEW", 17],
    "sums": {"a": {"units": 2**62, "currency": "€"}},
    "flags": {"true": "01"},
    "shop": {"units": 3, "currency": ""},
    "note": "",
    "lines": [{"parts": [{"number": 5}]}],
    "next": PLAIN | {"street": "Main"},
    "rates": [0.5, 2.0],
    "at": "2026-11-28T12:00:00.500Z",
    "within": "90s",
    "more": {"deep": {"list": [1, "x", None]}},
    "count": {"value": 2**60},
    "any": {"type_url": "type.googleapis.com/shop.Money", "value": "08 01"},
}


def test_records_of_a_real_serializer_are_decoded(kinds):
    module = pytest.importorskip("confluent_kafka.schema_registry.protobuf", exc_type=ImportError)
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.serialization import MessageField, SerializationContext

    with EmbeddedServer(['server.extensions=["schema_registry", "console"]', CONSOLE[1]]) as server:
        with SchemaRegistryClient({"url": server.schema_registry_url}) as registry:

            def written(name, message, field=MessageField.VALUE):
                serializer = module.ProtobufSerializer(kinds[name], registry, {"use.deprecated.format": False})
                return serializer(message, SerializationContext("t", field))

            part = kinds["Order.Line.Part"](number=9)
            values = [
                written("Order", full_order(kinds)),
                written("Other", kinds["Other"](text="first")),
                written("Order.Line.Part", part),
            ]
            key = written("Order.Line.Part", part, MessageField.KEY)
        server.create_topic("t")
        wrong = values[1][:5] + b"\2\x7e" + values[1][6:]
        server.produce("t", *values, values[0][:-1], wrong, values[1][:5], key=key)
        browser = Browser(server)
        browser.log_in()
        records = browser("records?name=t")[1]["records"]
    shown = [each["value"] for each in records]
    assert values[1][5] == 0, "the short form of the index"
    assert [each["as"] for each in shown] == ["Protobuf", "Protobuf", "Protobuf", "hex", "text", "text"]
    assert json.loads(shown[0]["text"]) == FULL
    assert json.loads(shown[1]["text"]) == {"text": "first"}
    assert json.loads(shown[2]["text"]) == json.loads(records[0]["key"]["text"]) == {"number": 9}
    assert {each["schema_id"] for each in shown} == {records[0]["key"]["schema_id"]}
    assert [each.get("note") for each in shown[3:]] == [
        "the data ends too early",
        "the schema has no message with the index [63]",
        "the data ends too early",
    ]


@settings(max_examples=50)
@given(st.data())
def test_any_order_is_shown_as_it_was_written(kinds, schema, data):
    money = st.fixed_dictionaries({"units": st.integers(-(2**63), 2**63 - 1), "currency": st.text(max_size=5)})
    drawn = data.draw(
        st.fixed_dictionaries(
            {"lines": st.lists(st.fixed_dictionaries({"parts": st.lists(st.just({"number": 3}), max_size=3)}))},
            optional={
                "id": st.integers(0, 2**64 - 1),
                "below": st.integers(-(2**63), 2**63 - 1),
                "price": st.floats(allow_nan=False, allow_infinity=False),
                "kinds": st.lists(st.sampled_from(["NEW", "OLD"])),
                "sums": st.dictionaries(st.text(max_size=5), money, max_size=3),
                "street": st.text(),
                "next": st.fixed_dictionaries({"note": st.text()}),
            },
        )
    )
    message = ParseDict(drawn, kinds["Order"]())
    shown = schema.decoded(ORDER_INDEX + message.SerializeToString(), Steps(100_000))
    inner = {"next": PLAIN | drawn["next"]} if "next" in drawn else {}
    assert shown == PLAIN | drawn | inner


@settings(max_examples=200)
@given(st.data())
def test_hostile_values_raise_only_value_error(kinds, schema, data):
    whole = ORDER_INDEX + full_order(kinds).SerializeToString()
    at = data.draw(st.integers(0, len(whole)))
    hostile = data.draw(st.sampled_from([whole[:at], whole])) + data.draw(st.binary(max_size=60))
    hostile = hostile[:at] + data.draw(st.binary(max_size=4)) + hostile[at + data.draw(st.integers(0, 4)) :]
    with contextlib.suppress(ValueError):
        schema.decoded(hostile, Steps(1_000))


@settings(max_examples=100)
@given(st.data())
def test_hostile_schemas_raise_only_value_error(files, data):
    whole = files["klamm_schema.proto"].SerializeToString()
    at = data.draw(st.integers(0, len(whole)))
    hostile = whole[:at] + data.draw(st.binary(max_size=8)) + whole[at + data.draw(st.integers(0, 8)) :]
    money = base64.b64encode(data.draw(st.sampled_from([hostile, files["shop/money.proto"].SerializeToString()])))
    with contextlib.suppress(ValueError):
        made = ProtobufSchema(
            (base64.b64encode(hostile).decode(), [("shop/money.proto", "money", 1)]),
            lambda _subject, _version: (money.decode(), ()),
        )
        made.decoded(ORDER_INDEX, Steps(1_000))


LIST = 'syntax = "proto3"; message L { L next = 1; map<int32, L> all = 2; }'
WIDE = f'syntax = "proto3"; message W {{ repeated W all = 1; {" ".join(f"int64 f{n} = {n};" for n in range(2, 900))} }}'
MANY = 'syntax = "proto3"; message M { repeated bool flags = 1; repeated double rates = 2; repeated string names = 3; }'


def nested(depth):
    data = b""
    for _ in range(depth):
        size = len(data)
        data = b"\x0a" + (bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])) + data
    return data


BOMBS = {
    "many empty messages of a wide type": (WIDE, b"\0" + b"\x0a\0" * 1_000, "parts"),
    "a message in itself": (LIST, b"\0" + nested(90), "nested"),
    "groups in groups": (LIST, b"\0" + b"\x7b" * 5_000, "nested"),
    "packed numbers": (MANY, b"\0\x0a\x80\x80\1" + bytes(1 << 14), "parts"),
    "packed fixed numbers": (MANY, b"\0\x12\x80\x80\6" + bytes(6 << 14), "parts"),
    "many empty texts": (MANY, b"\0" + b"\x1a\0" * 11_000, "parts"),
    "a number that does not end": (MANY, b"\0\x08" + b"\xff" * 100, "number"),
    "an index that does not end": (MANY, b"\xff" * 100, "number"),
    "many indexes": (MANY, b"\xfe\xff\xff\xff\x0f", "index"),
    "a count of indexes below nothing": (MANY, b"\1", "index"),
    "an index below nothing": (MANY, b"\2\1", "index"),
    "no index": (MANY, b"", "early"),
    "a size beyond the end": (MANY, b"\0\x1a\xff\xff\xff\xff\x0f", "early"),
    "a fixed number that is cut": (MANY, b"\0\x12\4\0\0\0\0\x19\0", "early"),
    "the end of a group that has not started": (MANY, b"\0\x0c", "match"),
    "a group that does not end": (MANY, b"\0\x7b\x08\1", "early"),
    "a type that is not in the encoding": (MANY, b"\0\x0e", "match"),
    "a field that is named like a method": (
        'syntax = "proto3"; message M { string HasField = 1; M m = 2; }',
        b"\0",
        "match",
    ),
    "half a character": (MANY, b"\0\x1a\1\xff", "match"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_with_a_reason(name):
    text, data, reason = BOMBS[name]
    with pytest.raises(ValueError, match=reason):
        schema_of(text).decoded(data, Steps(10_000))


def test_a_group_is_counted_and_fields_that_are_not_in_the_schema_are_left_out():
    assert schema_of(MANY).decoded(b"\0\x7b\x08\1\x7c\x1a\1x", Steps(100))["names"] == ["x"]


def test_messages_of_extensions_are_not_decoded():
    text = 'syntax = "proto2"; message M { extensions 5 to 9; optional int32 a = 1; } extend M { repeated M more = 5; }'
    assert schema_of(text).decoded(b"\0\x2a\0\x08\7" + b"\x2a\0" * 9, Steps(50)) == {"a": 7}


def test_a_time_outside_the_range_of_json_is_shown_unchanged(schema):
    assert schema.decoded(ORDER_INDEX + b"\x92\1\2\x10\x0f", Steps(1_000))["at"] == "1970-01-01T00:00:00.000000015Z"
    late = b"\x92\1\7\x08\xff\xff\xff\xff\xff\x7f"
    assert schema.decoded(ORDER_INDEX + late, Steps(1_000))["at"] == {"seconds": (1 << 42) - 1, "nanos": 0}


def test_an_import_that_only_options_need_may_be_missing():
    text = 'syntax = "proto3"; message M { int32 a = 1; }'
    own, _ = compiled(text, {})
    own.dependency.append("confluent/meta.proto")
    assert ProtobufSchema((descriptor(own), ()), None).decoded(b"\0\x08\7", Steps(100)) == {"a": 7}
    own.message_type[0].field.add(name="d", number=2, label=1, type=11, type_name=".confluent.type.Decimal")
    with pytest.raises(ValueError, match=r"the registry lacks confluent/meta\.proto"):
        ProtobufSchema((descriptor(own), ()), None)


def test_a_schema_that_refers_to_itself_is_requested_once(files):
    asked = []

    def ask(subject, version):
        asked.append((subject, version))
        return descriptor(files["shop/money.proto"]), [("shop/money.proto", "money", 1), ("b.proto", "b", len(asked))]

    with pytest.raises(ValueError, match="not a valid schema"):
        ProtobufSchema((descriptor(files["klamm_schema.proto"]), [("shop/money.proto", "money", 1)]), ask)
    assert len(asked) == 2


@pytest.mark.parametrize("text", ["", "not base64", "AAAA", MONEY], ids=["empty", "a text", "zeros", "a schema"])
def test_a_registry_that_returns_no_descriptor_is_named(text):
    with pytest.raises(ValueError, match=r"not .* schema|as descriptors|no message"):
        ProtobufSchema((text, ()), None).decoded(b"\0", Steps(100))


class Registry:
    """A registry whose schemas refer to each other without end."""

    def __init__(self):
        self.asked = []

    def ask(self, url, path):
        self.asked.append(path)
        number = len(self.asked)
        file = FileDescriptorProto(syntax="proto3", dependency=[f"{number}.proto"])
        reference = {"name": f"{number}.proto", "subject": f"a/{number}", "version": 1}
        return {"schemaType": "PROTOBUF", "schema": descriptor(file), "references": [reference]}


def test_requests_for_references_are_limited(monkeypatch):
    known, registry = schemas.Schemas(lambda: "http://127.0.0.1:1"), Registry()
    monkeypatch.setattr(known, "ask", registry.ask)
    page = known.page()
    for number in range(1, 4):
        with pytest.raises(ValueError, match="too many references"):
            page.decoded(number, b"\0", 100)
    assert registry.asked[2] == "subjects/a%2F2/versions/1?format=serialized&deleted=true"
    assert len(registry.asked) < 30


def test_the_missing_python_package_is_named(monkeypatch):
    known = schemas.Schemas(lambda: "http://127.0.0.1:1")
    monkeypatch.setattr(known, "ask", Registry().ask)
    monkeypatch.setitem(sys.modules, "klamm_console.protobuf", None)
    with pytest.raises(ValueError, match=r"klamm\[registry\]"):
        known.page().decoded(1, b"\0", 100)


def test_the_types_of_a_page_are_freed(files):
    def types():
        gc.collect()
        return sum(isinstance(each, type) and each.__name__ == "Money" for each in gc.get_objects())

    before = types()
    for _ in range(20):
        made = ProtobufSchema((descriptor(files["shop/money.proto"]), ()), None)
        assert made.decoded(b"\0\x08\7", Steps(100))["units"] == 7
    del made
    assert types() <= before
