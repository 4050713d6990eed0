"""Tests of JSON Schema in the Schema Registry: references, and which schema may follow another."""

import json
import re
import sys

import pytest

from klamm_schema_registry.errors import InvalidSchemaError
from klamm_schema_registry.formats import Steps, parse, problems
from klamm_schema_registry.json_schema import comparison, nodes
from klamm_schema_registry.json_schema.schema import parse as parse_json

NEWER = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def schema(value, references=None):
    return parse_json(json.dumps(value), {name: json.dumps(each) for name, each in (references or {}).items()})


def kinds(original, update, references=None):
    """Return the kinds of differences of an update, each with its path."""
    found = schema(update, references).unreadable(schema(original, references), Steps())
    return sorted(
        " ".join(re.findall(r'errorType:"(\w+)', each) + re.findall(r"path '([^']*)'", each)) for each in found
    )


def an_object(more=True, required=(), **properties):
    found = {"type": "object", "properties": properties, "additionalProperties": more}
    return {**found, **({"required": [*required]} if required else {})}


def string(**more):
    return {"type": "string", **more}


def number(**more):
    return {"type": "number", **more}


def array(**more):
    return {"type": "array", **more}


@pytest.mark.parametrize(
    ("original", "update", "found"),
    [
        (string(), {}, []),
        (string(), True, []),
        (False, string(), []),
        ({}, string(), ["TYPE_CHANGED #/"]),
        (string(), number(), ["TYPE_CHANGED #/"]),
        (string(), string(title="other", description="d", default="x"), []),
        ({"type": "integer"}, number(), []),
        (number(), {"type": "integer"}, ["TYPE_NARROWED #/"]),
        (string(maxLength=5), string(maxLength=6), []),
        (string(maxLength=5), string(maxLength=4), ["MAX_LENGTH_DECREASED #/maxLength"]),
        (string(), string(minLength=1, pattern="a"), ["MIN_LENGTH_ADDED #/minLength", "PATTERN_ADDED #/pattern"]),
        (string(pattern="a"), string(pattern="b"), ["PATTERN_CHANGED #/pattern"]),
        (number(minimum=1.5), number(minimum=2), ["MINIMUM_INCREASED #/minimum"]),
        (number(exclusiveMaximum=2), number(exclusiveMaximum=1), ["EXCLUSIVE_MAXIMUM_DECREASED #/exclusiveMaximum"]),
        (number(maximum=1), number(), []),
        (number(multipleOf=10), number(multipleOf=5), []),
        (number(multipleOf=5), number(multipleOf=10), ["MULTIPLE_OF_EXPANDED #/multipleOf"]),
        (number(multipleOf=5), number(multipleOf=7), ["MULTIPLE_OF_CHANGED #/multipleOf"]),
        (number(), number(multipleOf=7), ["MULTIPLE_OF_ADDED #/multipleOf"]),
        ({"enum": [1, 2]}, {"enum": [2, 1, 3]}, []),
        ({"enum": [1, 2]}, {"enum": [1]}, ["ENUM_ARRAY_NARROWED #/enum"]),
        ({"enum": [1, True]}, {"enum": [1, "x"]}, ["ENUM_ARRAY_CHANGED #/enum"]),
        ({"const": 1}, {"const": 2}, ["ENUM_ARRAY_CHANGED #/const"]),
        ({"const": 1}, {"const": 1}, []),
        (an_object(), an_object(a=string()), ["OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/a"]),
        (an_object(), an_object(a={}), []),
        (
            an_object(),
            an_object(required=["a"], a=string()),
            ["REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/a"],
        ),
        (an_object(False), an_object(False, a=string()), []),
        (an_object(False), an_object(False, ["a"], a=string(default="x")), []),
        (
            an_object(False),
            an_object(False, ["a"], a=string()),
            ["REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a"],
        ),
        (an_object(a=string()), an_object(), []),
        (
            an_object(False, a=string()),
            an_object(False),
            ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/a"],
        ),
        (an_object(False, a=False), an_object(False), []),
        (an_object(string(), a=string()), an_object(string()), []),
        (
            an_object(string(), a=number()),
            an_object(string()),
            [
                "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
                "TYPE_CHANGED #/properties/a",
            ],
        ),
        (
            an_object(string()),
            an_object(string(), a=number()),
            [
                "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
                "TYPE_CHANGED #/properties/a",
            ],
        ),
        (an_object(a=string()), an_object(required=["a"], a=string()), ["REQUIRED_ATTRIBUTE_ADDED #/required/a"]),
        (an_object(required=["a"], a=string()), an_object(a=string()), []),
        (an_object(), an_object(False), ["ADDITIONAL_PROPERTIES_REMOVED #/additionalProperties"]),
        (an_object(), an_object(string()), ["ADDITIONAL_PROPERTIES_NARROWED #/additionalProperties"]),
        (an_object(string()), an_object(), []),
        (
            {"dependencies": {"a": ["b"]}},
            {"dependencies": {"a": ["b", "c"], "d": ["e"]}},
            ["DEPENDENCY_ARRAY_ADDED #/dependencies/d", "DEPENDENCY_ARRAY_EXTENDED #/dependencies/a"],
        ),
        (
            {"dependencies": {"a": ["b"], "d": {}}},
            {"dependencies": {"a": ["c"], "d": string(), "e": {}}},
            [
                "DEPENDENCY_ARRAY_CHANGED #/dependencies/a",
                "DEPENDENCY_SCHEMA_ADDED #/dependencies/e",
                "TYPE_CHANGED #/dependencies/d",
            ],
        ),
        (array(items=string()), array(items=number()), ["TYPE_CHANGED #/items"]),
        (array(), array(items=number(), uniqueItems=True), ["SCHEMA_ADDED", "UNIQUE_ITEMS_ADDED #/uniqueItems"]),
        (array(items=[string()]), array(items=[string(), {}]), []),
        (array(items=[{}]), array(items=[{}, string()]), ["ITEM_ADDED_TO_OPEN_CONTENT_MODEL #/items/1"]),
        (array(items=[string()], additionalItems=False), array(items=[string()] * 2, additionalItems=False), []),
        (
            array(items=[string()] * 2, additionalItems=False),
            array(items=[string()], additionalItems=False),
            ["ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL #/items/1"],
        ),
        ({"type": ["string", "null"]}, {"type": ["null", "string", "number"]}, []),
        (string(), {"type": ["string", "null"]}, []),
        ({"type": ["string", "null"]}, {"type": ["string"]}, ["SUM_TYPE_NARROWED #/"]),
        ({"oneOf": [string(), number()]}, {"anyOf": [number(), string()]}, []),
        ({"anyOf": [string(), number()]}, {"oneOf": [number(), string()]}, ["COMBINED_TYPE_CHANGED #/"]),
        ({"allOf": [string()]}, {"allOf": [string(), number()]}, ["PRODUCT_TYPE_EXTENDED #/"]),
        (
            {"oneOf": [string(), number()]},
            {"oneOf": [{"type": "boolean"}, string()]},
            ["COMBINED_TYPE_SUBSCHEMAS_CHANGED #/"],
        ),
        ({"not": string()}, {"not": string(maxLength=3)}, []),
        ({"not": string(maxLength=3)}, {"not": string()}, ["NOT_TYPE_EXTENDED #/not"]),
        (
            {**NEWER, "type": "object"},
            {**NEWER, "type": "object", "unevaluatedProperties": False},
            ["UNEVALUATED_PROPERTIES_REMOVED #/unevaluatedProperties"],
        ),
        ({**NEWER, "prefixItems": [string()]}, {**NEWER, "prefixItems": [number()]}, ["TYPE_CHANGED #/items/0"]),
    ],
)
def test_which_schema_may_follow_another(original, update, found):
    assert kinds(original, update) == found


def test_recursive_schemas_are_compared():
    tree = an_object(child={"$ref": "#"}, leaf=string())
    assert kinds(tree, tree) == []
    assert kinds(tree, an_object(child={"$ref": "#"}, leaf=number())) == ["TYPE_CHANGED #/properties/leaf"]
    around = {"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"$ref": "#"}}}
    assert kinds(around, around) == []


def test_references_are_resolved_and_missing_ones_refused():
    named = {"order.json": {"$id": "order.json", "definitions": {"id": string()}, "type": "object"}}
    one = an_object(order={"$ref": "order.json"}, id={"$ref": "order.json#/definitions/id"})
    assert kinds(one, one, named) == []
    assert kinds(one, {**one, "properties": {**one["properties"], "id": number()}}, named) == [
        "TYPE_CHANGED #/properties/id"
    ]
    for missing in ("other.json", "#/definitions/none", "#anchor", "https://example.invalid/far.json"):
        with pytest.raises(ValueError, match="refers to|anchors"):
            schema({"$ref": missing})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (7, "is not a schema"),
        ({"type": "text"}, r"unknown type: \[text\]"),
        ({"type": [1]}, "unknown type"),
        ({"type": ["object", "object"]}, "a type twice"),
        ({"enum": 1}, "enum must be a list"),
        ({"anyOf": []}, "anyOf must be a list"),
        ({"properties": 1}, "properties must be an object"),
        ({"properties": {"a": 1}}, "is not a schema"),
        ({"required": "a"}, "required must be a list"),
    ],
)
def test_invalid_schemas_are_refused(value, said):
    with pytest.raises(InvalidSchemaError, match=said):
        parse("JSON", json.dumps(value), {})


def test_the_text_keeps_its_order_unless_it_is_normalized():
    made = parse_json('{ "type":"string",  "description":"é" }', {})
    assert made.canonical() == '{"type":"string","description":"é"}'
    assert made.normalized() == '{"description":"é","type":"string"}'


def test_messages_have_the_text_of_confluents_registry():
    found = problems(
        "BACKWARD",
        ("JSON", schema(an_object(required=["a"], a=string(maxLength=1)))),
        [("JSON", 2, schema(an_object(a=string(maxLength=2))))],
    )
    assert found[:3] == [
        '{errorType:"REQUIRED_ATTRIBUTE_ADDED", description:"The keyword at path \'#/required/a\' in the new schema is'
        " not present in the old schema'}",
        '{errorType:"MAX_LENGTH_DECREASED", description:"The value at path \'#/properties/a/maxLength\' in the new'
        " schema is less than its value in the old schema'}",
        "{oldSchemaVersion: 2}",
    ]


def test_properties_that_match_a_pattern_are_compared_with_it():
    pytest.importorskip("re2")
    closed = {"type": "object", "additionalProperties": False, "patternProperties": {"^a": string()}}
    assert kinds(closed, {**closed, "properties": {"ab": string()}}) == []
    assert "TYPE_CHANGED #/properties/ab" in kinds(closed, {**closed, "properties": {"ab": number()}})
    slow = {**closed, "patternProperties": {"^(a+)+$": string()}}
    assert kinds(slow, {**slow, "properties": {"a" * 200 + "b": string()}}) == []


def test_patterns_require_their_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "re2", None)
    closed = {"type": "object", "additionalProperties": False, "patternProperties": {"^a": string()}}
    with pytest.raises(InvalidSchemaError, match="cannot be compared"):
        problems("BACKWARD", ("JSON", schema({**closed, "properties": {"ab": {}}})), [("JSON", 1, schema(closed))])


def test_schemas_that_are_made_to_take_long_are_checked_quickly():
    many = [{"oneOf": [string(maxLength=each, title=name) for each in range(900)]} for name in "ab"]
    with pytest.raises(InvalidSchemaError, match="too complex"):
        problems("BACKWARD", ("JSON", schema(many[0])), [("JSON", 1, schema(many[1]))])
    deep = {}
    for _ in range(100):
        deep = {"not": deep}
    with pytest.raises(ValueError, match="nested more than 64"):
        schema(deep)


def chained(of):
    """Return definitions of which each contains the one before it twice."""
    found = {"L0": an_object(x={"type": of})}
    for level in range(1, 31):
        before = {"$ref": f"#/definitions/L{level - 1}"}
        found[f"L{level}"] = an_object(a=before, b=before)
    return {"$ref": "#/definitions/L30", "definitions": found}


def one_of(*parts):
    return {"oneOf": [*parts]}


def objects(name):
    """Return objects without common names."""
    return one_of(
        *(an_object(False, **{f"{name}{number}-{each}": string() for each in range(100)}) for number in range(60))
    )


def needing(name):
    required = [f"{name}{each}" for each in range(1000)]
    return one_of(*({**an_object(required=required), "title": f"{name}{each}"} for each in range(60)))


def enums(start):
    return one_of(*({"enum": list(range(start + number, start + number + 1000))} for number in range(60)))


def long_names(of):
    return an_object(**{"n" * 200_000: an_object(**{f"p{number}": {"type": of} for number in range(500)})})


def combined_deeply(title):
    made = string(description="d" * 500_000)
    for _ in range(60):
        made = {"allOf": [made, {"title": title}]}
    return made


def pattern_properties(count):
    return {
        "type": "object",
        "additionalProperties": False,
        "patternProperties": {f"^x{each}$": {} for each in range(count)},
    }


@pytest.mark.parametrize(
    ("original", "update"),
    [
        (chained("integer"), chained("string")),
        (objects("a"), objects("b")),
        (needing("a"), needing("b")),
        (enums(0), enums(10**6)),
        (long_names("integer"), long_names("string")),
        (combined_deeply("a"), combined_deeply("b")),
    ],
    ids=["a chain doubles", "properties", "required names", "enums", "a long name in many paths", "texts within texts"],
)
def test_the_number_of_steps_of_a_comparison_is_limited(original, update):
    with pytest.raises(InvalidSchemaError, match="too complex"):
        problems("BACKWARD", ("JSON", schema(update)), [("JSON", 1, schema(original))])


@pytest.mark.parametrize(("patterns", "names"), [(60, 3400), (1000, 1)])
def test_patterns_and_their_searches_are_counted(monkeypatch, patterns, names):
    class NothingFound:
        def search(self, name):
            return None

    monkeypatch.setattr(comparison, "compile_re2", lambda pattern: NothingFound())
    original = pattern_properties(patterns)
    update = {**original, "properties": {f"p{number}": {} for number in range(names)}}
    with pytest.raises(InvalidSchemaError, match="too complex"):
        problems("BACKWARD", ("JSON", schema(update)), [("JSON", 1, schema(original))])


def test_required_properties_are_read_once():
    names = [f"p{number}" for number in range(3000)]
    closed = an_object(False)
    required = an_object(False, names, **dict.fromkeys(names, string()))
    assert len(kinds(closed, required)) == len(names)
    assert schema(required).root.required == frozenset(names)


def test_each_place_is_read_once_for_all_spellings_of_references():
    spelled = ["%62ig", "b%69g", "bi%67", "big"]
    text = {"definitions": {"big": string()}, "anyOf": [{"$ref": f"#/definitions/{each}"} for each in spelled]}
    assert len({id(part.target()) for part in schema(text).root.parts}) == 1


def test_a_schema_has_a_limited_number_of_parts(monkeypatch):
    monkeypatch.setattr(nodes, "Steps", lambda problem: Steps(2000, problem))
    with pytest.raises(InvalidSchemaError, match="The schema is too complex"):
        schema({"anyOf": [{}] * 2000})
    # Each definition contains all deeper ones, and is read for the reference to it.
    found = array(items=[{}] * 100)
    for _ in range(60):
        found = array(items=found)
    everywhere = [{"$ref": "#/definitions/a" + "/items" * depth} for depth in range(60)]
    one = {"definitions": {"a": found}, **array(items=everywhere)}
    with pytest.raises(InvalidSchemaError, match="The schema is too complex"):
        kinds(one, one)


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "1e400"])
def test_numbers_outside_json_are_refused(text):
    with pytest.raises(InvalidSchemaError, match="is not JSON|is too large"):
        parse("JSON", f'{{"maximum": {text}}}', {})


def test_numbers_of_any_size_are_compared():
    small, large = number(multipleOf=1e-9), number(multipleOf=1e30)
    assert kinds(small, large) == ["MULTIPLE_OF_EXPANDED #/multipleOf"]
    assert kinds(large, small) == []
    assert kinds(number(multipleOf=0.3), number(multipleOf=0.1)) == []
    huge = 10**4200
    assert kinds(number(maximum=huge), number(maximum=huge - 1)) == ["MAXIMUM_DECREASED #/maximum"]


def test_the_comparison_of_mutual_references_takes_a_step_for_each_pair():
    names = [f"d{number}" for number in range(8)]
    one = {"$ref": "#/definitions/d0"}
    one["definitions"] = {name: {"oneOf": [{"$ref": f"#/definitions/{each}"} for each in names]} for name in names}
    assert kinds(one, one) == []
