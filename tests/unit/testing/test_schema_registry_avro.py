"""Tests of Avro in the Schema Registry: texts of schemas, and compatibility of readers and writers."""

import json

import pytest

from klamm_schema_registry.avro.schema import parse
from klamm_schema_registry.errors import InvalidSchemaError
from klamm_schema_registry.formats import Steps, problems
from klamm_schema_registry.formats import parse as parse_any


def avro(value, references=None):
    return parse(json.dumps(value), {name: json.dumps(each) for name, each in (references or {}).items()})


def kinds(reader, writer):
    """Return the kinds of problems of a reader's schema with a writer's."""
    found = avro(reader).unreadable(avro(writer), Steps())
    return [each.split("'")[1] for each in found]


def record(*fields, name="R", **more):
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name, of, **more):
    return {"name": name, "type": of, **more}


ENUM = {"type": "enum", "name": "E", "symbols": ["a", "b"]}
SMALL = {"type": "enum", "name": "E", "symbols": ["a"]}
FIXED = {"type": "fixed", "name": "F", "size": 4}
LIST = record(field("next", ["null", "R"]), field("value", "int"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"type": "string"}, '"string"'),
        ({"type": {"type": "array", "items": {"type": "int"}}}, '{"type":"array","items":"int"}'),
        (
            {"logicalType": "decimal", "precision": 4, "type": "bytes"},
            '{"type":"bytes","logicalType":"decimal","precision":4}',
        ),
        (
            {"fields": [], "aliases": ["Old", "x.Older"], "doc": "d", "name": "a.b.R", "type": "record", "own": 1},
            '{"type":"record","name":"R","namespace":"a.b","doc":"d","fields":[],"own":1,"aliases":["Old","x.Older"]}',
        ),
        (
            record(field("e", {**ENUM, "default": "a"}, order="ignore", default="b", doc="d", aliases=["f"])),
            '{"type":"record","name":"R","fields":[{"name":"e","type":{"type":"enum","name":"E","symbols":["a","b"],'
            '"default":"a"},"doc":"d","default":"b","order":"ignore","aliases":["f"]}]}',
        ),
        (
            record(field("a", {**FIXED, "namespace": "n"}), field("b", "n.F"), field("c", {**ENUM}), namespace="m"),
            '{"type":"record","name":"R","namespace":"m","fields":[{"name":"a","type":{"type":"fixed","name":"F",'
            '"namespace":"n","size":4}},{"name":"b","type":"n.F"},{"name":"c","type":{"type":"enum","name":"E",'
            '"symbols":["a","b"]}}]}',
        ),
        (LIST, json.dumps(LIST, separators=(",", ":"))),
        ({"type": "map", "values": ["null", "long"]}, '{"type":"map","values":["null","long"]}'),
    ],
)
def test_the_text_of_a_schema_equals_javas(value, text):
    assert avro(value).canonical() == text
    assert parse(text, {}).canonical() == text


def test_the_normal_form_has_names_and_attributes_in_order():
    value = record(field("b", FIXED, z=1, default="x"), field("c", "F"), namespace="n", y=[2], a=1, aliases=["q", "p"])
    assert avro(value).normalized() == (
        '{"type":"record","name":"R","namespace":"n","fields":[{"name":"b","type":{"type":"fixed","name":"F","size":4},'
        '"default":"x","z":1},{"name":"c","type":"F"}],"a":1,"y":[2],"aliases":["p","q"]}'
    )
    union = {"type": "map", "values": [{"type": "array", "items": ENUM}, "int"]}
    text = '{"type":"map","values":[{"type":"array","items":{"type":"enum","name":"E","symbols":["a","b"]}},"int"]}'
    assert avro(union).normalized() == text


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("nothing", "not a defined name"),
        (7, "is not a type"),
        ({"name": "x"}, 'No "type"'),
        ({"type": "other"}, "not a defined name"),
        ([["int"]], "Nested union"),
        (["int", "int"], "Duplicate in union"),
        ({"type": "array"}, "No items type"),
        ({"type": "map"}, "No values type"),
        ({"type": "record", "fields": []}, "No name in schema"),
        (record(name="1"), "Illegal character in: 1"),
        (record(name="a..b"), "Empty name"),
        (record(name="int"), "may not be named after primitives"),
        ({"type": "record", "name": "R"}, "Record has no fields"),
        (record({"name": "a"}), "No field type"),
        (record({"type": "int"}), "No field name"),
        (record(field("a", "int"), field("a", "int")), "Duplicate field a in record R"),
        (record(field("a", "int", order="up")), "The order of a field"),
        (record(field("a", record())), "Can't redefine: R"),
        ({"type": "enum", "name": "E"}, "Enum has no symbols"),
        ({**ENUM, "symbols": ["a", "a"]}, "Duplicate enum symbol"),
        ({**ENUM, "default": "c"}, "The Enum Default: c"),
        ({**FIXED, "size": -1}, "Invalid or no size"),
        (record(aliases="x"), "not an array of strings"),
    ],
)
def test_invalid_schemas_are_refused(value, said):
    with pytest.raises(ValueError, match=said):
        avro(value)


@pytest.mark.parametrize(
    ("reader", "writer", "found"),
    [
        ("int", "int", []),
        ("long", "int", []),
        ("int", "long", ["TYPE_MISMATCH"]),
        ("float", "long", []),
        ("double", "float", []),
        ("string", "bytes", []),
        ("bytes", "string", []),
        ("null", "boolean", ["TYPE_MISMATCH"]),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, []),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}, ["TYPE_MISMATCH"]),
        (["null", "int"], "int", []),
        (["null", "int"], "string", ["MISSING_UNION_BRANCH"]),
        ("int", ["null", "int"], ["TYPE_MISMATCH"]),
        ("long", ["int", "long"], []),
        (["null", "string"], ["null", "int", "string"], ["MISSING_UNION_BRANCH"]),
        (FIXED, {**FIXED, "size": 5}, ["FIXED_SIZE_MISMATCH"]),
        (FIXED, {**FIXED, "name": "G"}, ["NAME_MISMATCH"]),
        ({**FIXED, "aliases": ["G"]}, {**FIXED, "name": "G"}, []),
        ({**FIXED, "name": "x.F"}, {**FIXED, "name": "y.F"}, []),
        (ENUM, SMALL, []),
        (SMALL, ENUM, ["MISSING_ENUM_SYMBOLS"]),
        ({**SMALL, "default": "a"}, ENUM, []),
        (record(), record(field("a", "int")), []),
        (record(field("a", "int")), record(), ["READER_FIELD_MISSING_DEFAULT_VALUE"]),
        (record(field("a", "int", default=1)), record(), []),
        (record(field("a", ["null", "int"], default=None)), record(), []),
        (record(field("b", "int", aliases=["a"])), record(field("a", "int")), []),
        (record(field("a", "int")), record(field("a", "string")), ["TYPE_MISMATCH"]),
        (record(field("a", {**ENUM, "default": "a"})), record(), ["TYPE_MISMATCH"]),
        (LIST, LIST, []),
        (LIST, {**LIST, "fields": LIST["fields"][:1]}, ["READER_FIELD_MISSING_DEFAULT_VALUE"]),
    ],
)
def test_which_data_a_schema_can_read(reader, writer, found):
    assert kinds(reader, writer) == found


def test_a_problem_names_its_place():
    reader, writer = record(field("a", {"type": "array", "items": FIXED})), {**FIXED, "size": 8}
    found = problems(
        "BACKWARD", ("AVRO", avro(reader)), [("AVRO", 3, avro(record(field("a", {"type": "array", "items": writer}))))]
    )
    assert found[0] == (
        "{errorType:'FIXED_SIZE_MISMATCH', description:'The size of FIXED type field at path"
        " '/fields/0/type/items/size' in the new schema does not match with the old schema',"
        " additionalInfo:'expected: 8, found: 4'}"
    )
    assert found[1] == "{oldSchemaVersion: 3}"
    assert found[2].startswith("{oldSchema: '{")


def test_a_problem_within_a_union_names_the_branch():
    (one,) = avro("int").unreadable(avro(["int", "string"]), Steps())
    assert "path '/1'" in one


def test_a_field_with_the_names_of_several_is_refused():
    reader = record(field("a", "int", aliases=["b"]))
    (one,) = avro(reader).unreadable(avro(record(field("a", "int"), field("b", "int"))), Steps())
    assert "matches multiple fields" in one


def test_forward_and_full_also_check_the_other_direction():
    old, new = avro(record(field("a", "int"))), avro(record())
    assert problems("BACKWARD", ("AVRO", new), [("AVRO", 1, old)]) == []
    for level in ("FORWARD", "FULL"):
        (one, *_) = problems(level, ("AVRO", new), [("AVRO", 1, old)])
        assert "in the old schema has no default value and is missing in the new schema" in one
    assert problems("FULL", ("JSON", new), [("AVRO", 1, old)]) == ["Incompatible because of different schema type"]
    assert problems("NONE", ("JSON", new), [("AVRO", 1, old)]) == []


def test_the_text_of_a_large_earlier_schema_is_cut():
    old = avro(record(field("a", "int"), doc="x" * 20_000))
    found = problems("FORWARD", ("AVRO", avro(record())), [("AVRO", 1, old)])
    assert found[-1].startswith("{oldSchema: <truncated> '")
    assert len(found[-1]) < 11_000


def test_references_are_names_until_they_are_resolved():
    made = avro(record(field("f", "n.F")), {"n.F": {**FIXED, "namespace": "n"}})
    assert made.has_references
    assert '"type":"n.F"' in made.canonical()
    assert '"type":"n.F"' in made.normalized()
    assert '"size":4' in made.resolved() == made.formatted("resolved")
    assert made.formatted("other") == made.canonical()


def test_schemas_that_are_made_to_take_long_are_checked_quickly():
    unions = [[record(name=f"{name}{number}") for number in range(900)] for name in "ab"]
    with pytest.raises(InvalidSchemaError, match="too complex"):
        problems("BACKWARD", ("AVRO", avro(unions[0])), [("AVRO", 1, avro(unions[1]))])


def chained(of):
    """Return types of which each contains the one before it twice.

    Every field of `of` differs from that of another chain.
    """
    made = record(field("x", of), name="L0")
    for level in range(1, 31):
        made = record(field("a", made), field("b", f"L{level - 1}"), name=f"L{level}")
    return made


MANY = [f"f{number}" for number in range(200)]
LONG_NAME = "N" * 200_000


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (chained("int"), chained("string")),
        (
            [record(*(field(each, "int") for each in MANY), name=f"A{number}") for number in range(100)],
            [record(name=f"B{number}") for number in range(100)],
        ),
        (
            [{**ENUM, "name": f"A{number}", "symbols": MANY} for number in range(100)],
            [{**ENUM, "name": f"B{number}", "symbols": MANY[::-1]} for number in range(100)],
        ),
        ([record(name=f"A{number}") for number in range(400)], [record(name=LONG_NAME), "int"]),
    ],
    ids=["a chain doubles its problems", "many fields are missing", "many symbols", "a long name in many problems"],
)
def test_the_number_of_steps_of_a_comparison_is_limited(reader, writer):
    with pytest.raises(InvalidSchemaError, match="too complex"):
        problems("BACKWARD", ("AVRO", avro(reader)), [("AVRO", 1, avro(writer))])


def test_deeply_nested_schemas_are_refused():
    chain = {f"R{number + 1}": record(field("f", f"R{number}"), name=f"R{number + 1}") for number in range(2000)}
    first, second = (avro(record(field("f", "R2000")), {"R0": record(name="R0"), **chain}) for _ in range(2))
    with pytest.raises(InvalidSchemaError, match="nested too deeply"):
        problems("BACKWARD", ("AVRO", first), [("AVRO", 1, second)])


def test_errors_name_the_type():
    with pytest.raises(InvalidSchemaError, match="Invalid schema of type AVRO, details: .*not a defined name"):
        parse_any("AVRO", '"nothing"', {})


@pytest.mark.parametrize(
    ("kind", "valid", "invalid"),
    [
        ("int", [0, -(2**31)], [2**31, 1.5, "1", True, None]),
        ("long", [2**40], [2**63, 1.0]),
        ("double", [1, 1.5], ["1", True]),
        ("boolean", [True], [1, "true"]),
        ("null", [None], [0]),
        ("string", ["x"], [1, None]),
        (["null", "int"], [None, 1], ["x"]),
        ({"type": "array", "items": "int"}, [[], [1]], [{}, "x", [None]]),
        ({"type": "map", "values": "int"}, [{"a": 1}], [{"a": "x"}, []]),
        (record(field("a", "int"), field("b", "int", default=0)), [{"a": 1}, {"a": 1, "b": 2}], [{}, {"a": "x"}, 1]),
    ],
)
def test_the_default_of_a_new_field_is_of_its_type(kind, valid, invalid):
    for default in valid:
        avro(record(field("f", kind, default=default), name="Outer")).check_new()
    for default in invalid:
        with pytest.raises(ValueError, match="Invalid default for field f"):
            avro(record(field("f", kind, default=default), name="Outer")).check_new()


def test_defaults_that_take_long_to_check_are_refused():
    kind, value = record(name="X0"), 7
    for depth in range(1, 19):
        first = record(field("a", kind), name=f"A{depth}")
        second = record(field("a", f"X{depth - 1}"), name=f"B{depth}")
        kind, value = record(field("u", [first, second]), name=f"X{depth}"), {"u": {"a": value}}
    with pytest.raises(InvalidSchemaError, match="too complex"):
        avro(record(field("f", kind, default=value), name="Outer")).check_new()
