"""Tests of Protocol Buffers in the Schema Registry: texts, descriptors, and which schema may follow another."""

import base64
import re
import subprocess
import sys

import pytest

pytest.importorskip("grpc_tools", reason="needs the extra registry", exc_type=ImportError)
pytest.importorskip("google.protobuf")

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from klamm_schema_registry.errors import InvalidSchemaError
from klamm_schema_registry.formats import Steps, problems
from klamm_schema_registry.formats import parse as parse_any
from klamm_schema_registry.protobuf import compiling
from klamm_schema_registry.protobuf.comparison import Types, unreadable
from klamm_schema_registry.protobuf.printing import printed
from klamm_schema_registry.protobuf.schema import parse

EVERYTHING = """syntax = "proto3";
package shop.v1;

import "google/protobuf/timestamp.proto";

option java_package = "org.shop";
option optimize_for = SPEED;

enum Kind {
  option allow_alias = true;
  reserved 7, 9 to 12;
  reserved "OLD";
  NONE = 0;
  NOTHING = 0 [deprecated = true];
}

message Order {
  reserved 20, 30 to max;
  reserved "gone";
  string id = 1;
  repeated int32 numbers = 2 [packed = false];
  optional bool paid = 3;
  map<string, .shop.v1.Order.Line> lines = 4;
  oneof place {
    string street = 5;
    bytes point = 6 [json_name = "PT"];
  }
  .google.protobuf.Timestamp at = 7;
  .shop.v1.Kind kind = 8;
  message Line {
    double price = 1;
  }
}

service Orders {
  rpc Put (.shop.v1.Order) returns (stream .shop.v1.Order);
}
"""
OLDER = """syntax = "proto2";

message Old {
  required string id = 1;
  optional int32 count = 2 [default = 7];
  optional string name = 3 [default = "x"];
  extensions 100 to 199;
}

extend .Old {
  optional string more = 100;
}
"""


def message(*lines, head='syntax = "proto3";', more=""):
    return f"{head} message M {{ {' '.join(lines)} }} {more}"


def proto2(*lines):
    return message(*lines, head='syntax = "proto2";')


@pytest.mark.parametrize("text", [EVERYTHING, OLDER])
def test_a_text_and_its_descriptor_are_the_same_schema(text):
    made = parse(text, {})
    assert made.canonical() == made.normalized() == text
    descriptor = made.formatted("serialized")
    assert FileDescriptorProto.FromString(base64.b64decode(descriptor)).message_type[0].name in ("Order", "Old")
    assert parse(descriptor, {}).canonical() == text


def test_layout_and_comments_do_not_change_a_schema():
    spaced = "// an order\n" + EVERYTHING.replace("{\n", "{\n\n\t").replace(".shop.v1.", "")
    assert parse(spaced.replace("google.protobuf.Timestamp", "google.protobuf.Timestamp"), {}).canonical() == EVERYTHING


CASES = [
    ("a field is added", message("int32 a = 1;"), message("int32 a = 1; string b = 2;"), []),
    ("a field is removed and another renamed", message("int32 a = 1; int32 b = 2;"), message("int32 c = 1;"), []),
    ("numbers of a kind", message("int32 a = 1;"), message("uint64 a = 1;"), []),
    ("text and bytes", message("string a = 1;"), message("repeated bytes a = 1;"), []),
    ("another kind", message("int32 a = 1;"), message("sint32 a = 1;"), ["FIELD_SCALAR_KIND_CHANGED #/M/1"]),
    ("a number and text", message("int32 a = 1;"), message("string a = 1;"), ["FIELD_SCALAR_KIND_CHANGED #/M/1"]),
    (
        "an enum and a number",
        message("E a = 1;", more="enum E { X = 0; }"),
        message("int32 a = 1;"),
        [],
    ),
    (
        "a label of a number",
        message("optional int32 a = 1;"),
        message("repeated int32 a = 1;"),
        ["FIELD_NUMERIC_LABEL_CHANGED #/M/1"],
    ),
    (
        "a message and a number",
        message("N a = 1; message N {}"),
        message("int32 a = 1;"),
        ["FIELD_KIND_CHANGED #/M/1", "MESSAGE_REMOVED #/M/N"],
    ),
    (
        "another message",
        message("N a = 1; message N {} message O {}"),
        message("O a = 1; message N {} message O {}"),
        ["FIELD_NAMED_TYPE_CHANGED #/M/1"],
    ),
    (
        "a message that changed",
        message("N a = 1; message N { int32 x = 1; }"),
        message("N a = 1; message N { string x = 1; }"),
        ["FIELD_NAMED_TYPE_CHANGED #/M/1", "FIELD_SCALAR_KIND_CHANGED #/M/N/1"],
    ),
    ("the values of a map", message("map<string, int32> a = 1;"), message("map<string, int64> a = 1;"), []),
    (
        "the keys of a map",
        message("map<string, int32> a = 1;"),
        message("map<int32, int32> a = 1;"),
        ["FIELD_SCALAR_KIND_CHANGED #/M/1"],
    ),
    (
        "a map and a list",
        message("map<string, int32> a = 1;"),
        message("repeated int32 a = 1;"),
        ["FIELD_KIND_CHANGED #/M/1"],
    ),
    ("a field is required", proto2(), proto2("required int32 a = 1;"), ["REQUIRED_FIELD_ADDED #/M/1"]),
    ("a required field is gone", proto2("required int32 a = 1;"), proto2(), ["REQUIRED_FIELD_REMOVED #/M/1"]),
    (
        "a field of a oneof is gone",
        message("oneof o { int32 a = 1; int32 b = 2; }"),
        message("oneof o { int32 a = 1; }"),
        ["ONEOF_FIELD_REMOVED #/M/o/2"],
    ),
    ("a oneof is gone", message("oneof o { int32 a = 1; int32 b = 2; }"), message(), []),
    ("one field moves into a new oneof", message("int32 a = 1;"), message("oneof o { int32 a = 1; int32 b = 2; }"), []),
    (
        "two fields move into a oneof",
        message("int32 a = 1; int32 b = 2;"),
        message("oneof o { int32 a = 1; int32 b = 2; }"),
        ["MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o"],
    ),
    (
        "a field moves into an old oneof",
        message("int32 a = 1; oneof o { int32 b = 2; }"),
        message("oneof o { int32 a = 1; int32 b = 2; }"),
        ["FIELD_MOVED_TO_EXISTING_ONEOF #/M/o"],
    ),
    ("a message that contains itself", message("M a = 1;"), message("M a = 1; int32 b = 2;"), []),
    (
        "the package",
        'syntax = "proto3"; package a; message M {}',
        'syntax = "proto3"; package b; message M {}',
        ["PACKAGE_CHANGED #/"],
    ),
    ("a message is gone", message(more="message N {}"), message(), ["MESSAGE_REMOVED #/N"]),
]


def compiled_at_once(texts):
    """Return the types of each text, compiled in one run. A text without a package gets one."""
    files = {}
    for number, text in enumerate(texts):
        own = text if "package" in text else text.replace(";", f"; package p{number};", 1)
        files[f"case{number}.proto"] = own
    main = 'syntax = "proto3"; ' + " ".join(f'import "{name}";' for name in files)
    _, imported = compiling.compiled(main, files)
    by_name = {file.name: Types(file, []) for file in imported}
    return [by_name[name] for name in files]


@pytest.fixture(scope="module")
def pairs():
    originals = compiled_at_once([original for _, original, _, _ in CASES])
    updates = compiled_at_once([update for _, _, update, _ in CASES])
    return {what: pair for (what, *_), *pair in zip(CASES, originals, updates, strict=True)}


@pytest.mark.parametrize(("what", "found"), [(what, found) for what, _, _, found in CASES])
def test_which_schema_may_follow_another(pairs, what, found):
    original, update = pairs[what]
    texts = unreadable(update, original, Steps())
    assert (
        sorted(" ".join(re.search(r"errorType:.(\w+).*(?:path:?|at) '([^']+)", each).groups()) for each in texts)
        == found
    )


def test_imports_are_resolved():
    named = {"a/b.proto": 'syntax = "proto3"; package n; message N { int32 x = 1; }'}
    text = 'syntax = "proto3"; import "a/b.proto"; message M { n.N one = 1; }'
    made = parse(text, named)
    assert 'import "a/b.proto";' in made.canonical()
    changed = parse(text, {"a/b.proto": named["a/b.proto"].replace("int32", "string")})
    assert len(changed.unreadable(made, Steps())) == 2
    with pytest.raises(ValueError, match=r"a/b\.proto"):
        parse(text, {})


def test_names_of_imports_cannot_leave_their_folder():
    for name in ("../up.proto", "/etc/up.proto", "a/../../up.proto", "C:up.proto", "klamm_schema.proto/x"):
        with pytest.raises(ValueError, match="not the name of an import"):
            parse('syntax = "proto3";', {name: 'syntax = "proto3";'})


@pytest.mark.parametrize("path", [None, "."])
def test_names_of_imports_load_no_python_modules(tmp_path, monkeypatch, path):
    if path is not None:
        monkeypatch.setenv("PYTHONPATH", path)
    marker = tmp_path / "marker"
    code = f"open({str(marker)!r}, 'w')"
    names = ("grpc_tools/__init__.py", "grpc_tools/protoc.py", "sitecustomize.py", "subprocess.py")
    assert parse('syntax = "proto3";', dict.fromkeys(names, code)).canonical() == 'syntax = "proto3";\n'
    assert not marker.exists()


def test_a_descriptor_with_a_missing_reference_is_refused():
    file = FileDescriptorProto(syntax="proto3")
    file.message_type.add(name="M").field.add(name="a", number=1, label=1, type=5, oneof_index=7)
    with pytest.raises(InvalidSchemaError, match="refers to what it does not have"):
        parse_any("PROTOBUF", base64.b64encode(file.SerializeToString()).decode(), {})


@pytest.mark.parametrize(
    "text",
    [
        'syntax = "proto3"; message M { int32 a = 1; int32 b = 1; }',
        'syntax = "proto3"; message M { Unknown a = 1; }',
        "message " * 100 + "{",
        'syntax = "proto3"; ' + "message M { " * 500 + "} " * 500,
    ],
    ids=["a number twice", "an unknown type", "no text", "nested deeply"],
)
def test_invalid_schemas_are_refused(text):
    with pytest.raises(InvalidSchemaError, match="Invalid schema of type PROTOBUF"):
        parse_any("PROTOBUF", text, {})


def test_groups_are_refused():
    with pytest.raises(ValueError, match="groups are not supported"):
        parse('syntax = "proto2"; message M { optional group G = 1 { optional int32 a = 1; } }', {})


def test_a_compiler_that_takes_too_long_is_stopped(monkeypatch):
    def run(arguments, **options):
        raise subprocess.TimeoutExpired(arguments, options["timeout"])

    monkeypatch.setattr(compiling.subprocess, "run", run)
    with pytest.raises(ValueError, match="not compiled within"):
        parse('syntax = "proto3";', {})


def test_the_missing_python_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc_tools", None)
    with pytest.raises(InvalidSchemaError, match=r"klamm\[registry\]"):
        parse_any("PROTOBUF", 'syntax = "proto3";', {})


def test_the_cost_of_comparisons_is_limited():
    file = FileDescriptorProto(syntax="proto3")
    for number in range(100):
        one = file.message_type.add(name=f"M{number}")
        for other in range(100):
            one.field.add(name=f"f{other}", number=other + 1, label=1, type=11, type_name=f".M{other}")
    many = Types(file, [])
    assert unreadable(many, many, Steps()) == []
    with pytest.raises(InvalidSchemaError, match="too complex"):
        unreadable(many, many, Steps(1000))


def chained(kind):
    """Return messages of which each contains the one before it twice."""
    file = FileDescriptorProto(syntax="proto3")
    file.message_type.add(name="L0").field.add(name="x", number=1, label=1, type=kind)
    for level in range(1, 31):
        one = file.message_type.add(name=f"L{level}")
        for number, name in enumerate("ab", 1):
            one.field.add(name=name, number=number, label=1, type=11, type_name=f".L{level - 1}")
    return Types(file, [])


def long_name(kind):
    file = FileDescriptorProto(syntax="proto3")
    one = file.message_type.add(name="N" * 200_000)
    for number in range(1, 400):
        one.field.add(name=f"f{number}", number=number, label=1, type=kind)
    return Types(file, [])


@pytest.mark.parametrize("made", [chained, long_name])
def test_the_number_of_steps_of_a_comparison_is_limited(made):
    with pytest.raises(InvalidSchemaError, match="too complex"):
        unreadable(made(5), made(9), Steps())


def test_the_cost_of_printing_grows_linearly_with_the_fields():
    file = FileDescriptorProto(syntax="proto3", dependency=["x"] * 20_000, public_dependency=range(20_000))
    one = file.message_type.add(name="M")
    for number in range(3000):
        one.oneof_decl.add(name=f"o{number}")
        one.field.add(name=f"f{number}", number=number + 1, label=1, type=5, oneof_index=number)
    calls = []

    def count(frame, event, argument):
        calls.append(event)

    sys.setprofile(count)
    try:
        text = printed(file)
    finally:
        sys.setprofile(None)
    assert text.count("oneof") == 3000
    # The cost grows with the size of the descriptor, not with its square, which is nine million.
    assert len(calls) < 2_000_000


def test_messages_have_the_text_of_confluents_registry():
    old, new = parse(message("int32 a = 1;"), {}), parse(message("string a = 1;"), {})
    assert problems("BACKWARD", ("PROTOBUF", new), [("PROTOBUF", 4, old)])[0] == (
        '{errorType:"FIELD_SCALAR_KIND_CHANGED", description:"The kind of a SCALAR field at path \'#/M/1\' in the new'
        ' schema does not match its kind in the old schema"}'
    )
