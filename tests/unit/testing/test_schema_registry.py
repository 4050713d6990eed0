"""Tests of the extension `schema_registry`: its paths, its errors, and its records in the topic."""

import json

import pytest

from klamm.testing import EmbeddedServer
from tests.registry_client import Rest

LONG = '"long"'
TWO = {"type": "record", "name": "Two", "fields": [{"name": "a", "type": "int"}]}
MORE = {**TWO, "fields": [*TWO["fields"], {"name": "b", "type": "int"}]}
SPARE = {**TWO, "fields": [*TWO["fields"], {"name": "b", "type": "int", "default": 0}]}


@pytest.fixture(scope="module")
def server():
    with EmbeddedServer(schema_registry=True) as server:
        yield server


@pytest.fixture
def rest(server):
    server.reset()
    return Rest(server.schema_registry_url)


def test_registered_schemas_can_be_read(rest):
    assert rest("GET", "/") == (200, {})
    text = json.dumps(TWO, separators=(",", ":"))
    made = {"id": 1, "version": 1, "schemaType": "AVRO", "schema": text}
    assert rest.register("s", TWO) == (200, made)
    assert rest.register("s", json.dumps(TWO, indent=2)) == (200, made)
    assert rest.register("other/one", TWO)[1]["id"] == 1
    assert rest.register("s", SPARE)[1]["id"] == 2
    assert rest("GET", "/subjects") == (200, ["other/one", "s"])
    assert rest("GET", "/subjects?subjectPrefix=o&offset=0&limit=5") == (200, ["other/one"])
    assert rest("GET", "/subjects/s/versions") == (200, [1, 2])
    assert rest("GET", "/subjects/other%2Fone/versions/latest")[1]["subject"] == "other/one"
    assert rest("GET", "/subjects/s/versions/1") == (200, {**made, "subject": "s", "deleted": False})
    assert rest.raw("GET", "/subjects/s/versions/1/schema")[1] == text.encode()
    shown = {"subject": "other/one", "version": 1, "schemaType": "AVRO", "schema": text, "deleted": False}
    assert rest("GET", "/schemas/ids/1") == (200, shown)
    assert rest("GET", "/schemas/ids/1?fetchMaxId=true")[1]["maxId"] == 2
    assert rest.raw("GET", "/schemas/ids/1/schema")[1] == text.encode()
    assert rest("GET", "/schemas/ids/1/subjects") == (200, ["other/one", "s"])
    assert rest("GET", "/schemas/ids/1/versions")[1][1] == {"subject": "s", "version": 1}
    assert [each["id"] for each in rest("GET", "/schemas")[1]] == [1, 1, 2]
    assert [each["id"] for each in rest("GET", "/schemas?latestOnly=true&subjectPrefix=s")[1]] == [2]
    assert rest("POST", "/subjects/s", {"schema": json.dumps(SPARE)})[1]["version"] == 2
    assert "AVRO" in rest("GET", "/schemas/types")[1]
    assert rest("GET", "/contexts") == (200, ["."])


def test_answers_have_the_content_type(rest):
    for path in ("/subjects", "/subjects/none/versions"):
        assert rest.raw("GET", path)[2]["Content-Type"] == "application/vnd.schemaregistry.v1+json"


def test_missing_schemas_subjects_and_versions_are_errors(rest):
    rest.register("s", TWO)
    assert rest("GET", "/subjects/none/versions") == (
        404,
        {"error_code": 40401, "message": "Subject 'none' not found."},
    )
    assert rest("GET", "/subjects/s/versions/7") == (404, {"error_code": 40402, "message": "Version 7 not found."})
    assert rest("GET", "/schemas/ids/7") == (404, {"error_code": 40403, "message": "Schema 7 not found"})
    body = {"schema": LONG}
    assert rest.codes(
        ("GET", "/subjects/s/versions/0"),
        ("GET", "/subjects/s/versions/first"),
        ("POST", "/subjects/s", body),
        ("POST", "/subjects/none", body),
        ("DELETE", "/subjects/none"),
        ("DELETE", "/subjects/s/versions/2"),
        ("GET", "/config/s"),
        ("DELETE", "/config/s"),
        ("GET", "/mode/s"),
        ("DELETE", "/mode/s"),
        ("GET", "/schemas/ids/7/subjects"),
        ("POST", "/compatibility/subjects/s/versions/9", body),
        ("GET", "/nothing"),
        ("PUT", "/subjects", {}),
    ) == [42202, 42202, 40403, 40401, 40401, 40402, 40408, 40401, 40409, 40401, 40403, 40402, 404, 405]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("", "Empty schema"),
        ("{", "Invalid schema of type AVRO, details: "),
        ('"\\ud800"', "is not a defined name"),
        ('{"type":"record","name":"R","doc":"\\ud800","fields":[]}', "half of one"),
        ("NaN", "NaN is not JSON"),
        ("[" * 100 + "]" * 100, "nested more than 64 levels deep"),
        ("[" * 200_000, "nested too deeply"),
        ('{"type":"fixed","name":"F","size":1' + "0" * 5000 + "}", "details"),
    ],
)
def test_invalid_schemas_are_refused(rest, schema, said):
    status, answer = rest.register("s", schema)
    assert (status, answer["error_code"]) == (422, 42201)
    assert said in answer["message"]


def test_unknown_types_and_invalid_bodies_are_refused(rest):
    assert rest.register("s", LONG, schemaType="XML")[1]["message"] == "Invalid schema type XML"
    for body in (b"{", b"[]", b"[" * 100_000):
        assert rest.raw("POST", "/subjects/s/versions", body)[0] == 400
    for wrong in ({"schema": {}}, {"schema": LONG, "references": [1]}, {"schema": LONG, "id": 1 << 31}):
        assert rest("POST", "/subjects/s/versions", wrong)[0] == 400
    for wrong in ({"schema": 1}, {"schema": LONG, "references": [{}]}, None):
        assert rest("POST", "/subjects/s/versions", wrong)[0] == 422
    assert rest.raw("POST", "/subjects/s/versions", b"x" * (2 << 20))[0] == 422
    assert rest.raw("POST", "/subjects", b"", {"Transfer-Encoding": "chunked"})[0] == 411


@pytest.mark.parametrize(
    "body",
    [
        {"schemaType": ["x"]},
        {"id": 1e999},
        {"metadata": {"properties": {"a": "\ud800"}}},
        {"metadata": {"properties": {"a": float("nan")}}},
        {"references": [{"name": "n", "subject": "s", "version": float("inf")}]},
    ],
)
def test_wrong_fields_are_errors_of_the_request(rest, body):
    assert rest("POST", "/subjects/s/versions", {"schema": LONG, **body})[0] in (400, 422)
    assert rest("GET", "/subjects") == (200, [])


def test_versions_are_deleted_softly_and_permanently(rest):
    rest.register("s", TWO)
    rest.register("s", SPARE)
    assert rest("DELETE", "/subjects/s/versions/1?permanent=true")[1]["error_code"] == 40407
    assert rest("DELETE", "/subjects/s/versions/1") == (200, 1)
    assert rest("DELETE", "/subjects/s/versions/1")[1]["error_code"] == 40406
    assert rest("GET", "/subjects/s/versions") == (200, [2])
    assert rest("GET", "/subjects/s/versions?deleted=true") == (200, [1, 2])
    assert rest("GET", "/subjects/s/versions?deletedOnly=true") == (200, [1])
    assert rest("GET", "/subjects/s/versions/1")[0] == 404
    assert rest("GET", "/subjects/s/versions/1?deleted=true")[1]["id"] == 1
    assert rest("GET", "/schemas/ids/1")[0] == 200
    assert rest("DELETE", "/subjects/s/versions/1?permanent=true") == (200, 1)
    assert rest("GET", "/schemas/ids/1")[0] == 404
    assert rest("DELETE", "/subjects/s?permanent=true")[1]["error_code"] == 40405
    assert rest("DELETE", "/subjects/s") == (200, [2])
    assert rest("DELETE", "/subjects/s")[1]["error_code"] == 40404
    assert rest("GET", "/subjects") == (200, [])
    assert rest("GET", "/subjects?deleted=true") == rest("GET", "/subjects?deletedOnly=true") == (200, ["s"])
    assert rest("DELETE", "/subjects/s?permanent=true") == (200, [2])
    assert rest("GET", "/subjects?deleted=true") == (200, [])


def test_a_deleted_schema_returns_as_a_new_version_with_its_id(rest):
    rest.register("s", TWO)
    rest.register("s", SPARE)
    rest("DELETE", "/subjects/s/versions/1")
    rest("PUT", "/config/s", {"compatibility": "NONE"})
    assert rest.register("s", TWO)[1]["version"] == 3
    assert rest("GET", "/subjects/s/versions/3")[1]["id"] == 1
    assert rest("GET", "/subjects/s/versions?deleted=true") == (200, [2, 3])


def test_compatibility_levels_can_be_set(rest):
    assert rest("GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})
    assert rest("PUT", "/config", {"compatibility": "full"}) == (200, {"compatibility": "FULL"})
    assert rest("PUT", "/config/s", {"compatibility": "NONE"}) == (200, {"compatibility": "NONE"})
    assert rest("GET", "/config/s") == (200, {"compatibilityLevel": "NONE"})
    assert rest("GET", "/config/t?defaultToGlobal=true") == (200, {"compatibilityLevel": "FULL"})
    assert rest("DELETE", "/config/s") == (200, {"compatibilityLevel": "NONE"})
    assert rest("DELETE", "/config") == (200, {"compatibilityLevel": "FULL"})
    assert rest("GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})
    status, answer = rest("PUT", "/config", {"compatibility": "SIDEWAYS"})
    assert (status, answer["error_code"]) == (422, 42203)


@pytest.mark.parametrize(
    ("level", "allowed"),
    [("NONE", True), ("BACKWARD", False), ("FORWARD", True), ("FULL", False), ("FORWARD_TRANSITIVE", True)],
)
def test_the_compatibility_level_decides_which_schema_may_follow(rest, level, allowed):
    rest("PUT", "/config/s", {"compatibility": level})
    rest.register("s", TWO)
    path = "/compatibility/subjects/s/versions"
    body = {"schema": json.dumps(MORE)}
    assert rest("POST", path, body) == rest("POST", f"{path}/latest", body) == (200, {"is_compatible": allowed})
    status, answer = rest.register("s", MORE)
    assert status == (200 if allowed else 409)
    if not allowed:
        assert answer["error_code"] == 40901
        start = 'Schema being registered is incompatible with an earlier schema for subject "s", details: [{errorType:'
        assert answer["message"].startswith(start)
        assert answer["message"].endswith(f"{{validateFields: 'false', compatibility: '{level}'}}]")
        (one, *_) = rest("POST", f"{path}/1?verbose=true", body)[1]["messages"]
        assert one in answer["message"]


def test_transitive_levels_check_all_versions(rest):
    dropped = {**TWO, "fields": []}
    rest("PUT", "/config/s", {"compatibility": "NONE"})
    rest.register("s", dropped)
    rest.register("s", TWO)
    path, body = "/compatibility/subjects/s/versions", {"schema": json.dumps({**TWO, "doc": "same"})}
    for level, allowed in (("BACKWARD", True), ("BACKWARD_TRANSITIVE", False), ("FULL_TRANSITIVE", False)):
        rest("PUT", "/config/s", {"compatibility": level})
        assert rest("POST", path, body)[1] == {"is_compatible": allowed}


def test_a_subject_without_versions_allows_everything(rest):
    body = {"schema": json.dumps(MORE)}
    assert rest("POST", "/compatibility/subjects/new/versions/latest", body) == (200, {"is_compatible": True})
    assert rest("POST", "/compatibility/subjects/new/versions?verbose=true", {"schema": "{"})[1]["messages"]


def test_modes_can_be_set(rest):
    rest.register("s", TWO)
    assert rest("GET", "/mode") == (200, {"mode": "READWRITE"})
    assert rest("PUT", "/mode/s", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    assert rest.register("s", TWO)[0] == 200
    status, answer = rest.register("s", SPARE)
    assert (status, answer["error_code"]) == (422, 42205)
    assert rest.codes(("DELETE", "/subjects/s"), ("DELETE", "/subjects/s/versions/1")) == [42205, 42205]
    assert rest("DELETE", "/mode/s") == (200, {"mode": "READONLY"})
    assert rest("PUT", "/mode", {"mode": "READONLY_OVERRIDE"})[0] == 200
    rest("PUT", "/mode/s", {"mode": "READWRITE"})
    assert rest("GET", "/mode/s?defaultToGlobal=true") == (200, {"mode": "READONLY_OVERRIDE"})
    assert rest.register("s", SPARE)[1]["error_code"] == 42205
    assert rest("DELETE", "/mode")[0] == 200
    assert rest.codes(("PUT", "/mode", {"mode": "FAST"}), ("PUT", "/mode", {"mode": "IMPORT"})) == [42204, 42205]


def test_schemas_are_imported_with_their_ids_and_versions(rest):
    assert rest.register("s", TWO, id=77, version=5)[1]["error_code"] == 42205
    rest("PUT", "/mode/s", {"mode": "IMPORT"})
    assert rest.register("s", TWO, id=77, version=5)[1]["id"] == 77
    assert rest.register("s", SPARE)[1]["error_code"] == 42205
    assert rest.register("s", MORE, id=77, version=6)[1]["error_code"] == 42205
    rest("PUT", "/mode/s", {"mode": "READWRITE"})
    assert rest.register("s", SPARE, version=9)[1]["error_code"] == 42201
    made = rest.register("s", SPARE, version=6)[1]
    assert (made["id"], made["version"]) == (78, 6)


def test_references_to_other_schemas_are_resolved_and_protect_them(rest):
    rest.register("two", TWO)
    one = {"type": "record", "name": "One", "fields": [{"name": "two", "type": "Two"}]}
    named = [{"name": "Two", "subject": "two", "version": 1}]
    assert rest.register("one", one)[1]["error_code"] == 42201
    missing = rest.register("one", one, references=[{**named[0], "version": 2}])[1]
    assert 'No schema reference found for subject "two" and version 2' in missing["message"]
    assert rest.register("one", one, references=named)[1]["references"] == named
    assert rest("GET", "/schemas/ids/2")[1]["references"] == named
    assert rest("GET", "/subjects/two/versions/1/referencedby") == (200, [2])
    assert rest.codes(("DELETE", "/subjects/two"), ("DELETE", "/subjects/two/versions/1")) == [42206, 42206]
    whole = {**one, "fields": [{"name": "two", "type": TWO}]}
    assert json.loads(rest.raw("GET", "/schemas/ids/2/schema?format=resolved")[1]) == whole
    assert rest("POST", "/subjects/one", {"schema": json.dumps(whole)})[1]["version"] == 1
    rest("DELETE", "/subjects/one")
    assert rest("GET", "/subjects/two/versions/1/referencedby") == (200, [])
    assert rest("GET", "/subjects/two/versions/1/referencedby?deleted=true") == (200, [2])
    assert rest("DELETE", "/subjects/two") == (200, [1])


def test_a_reference_may_become_another_schema(rest):
    one = '{"type":"record","name":"One","fields":[{"name":"two","type":"Two"}]}'
    named = [{"name": "Two", "subject": "two", "version": 1}]
    rest.register("two", TWO)
    # The reference was parsed but not registered, so its target can be deleted.
    body = {"schema": one, "references": named}
    assert rest("POST", "/compatibility/subjects/one/versions", body) == (200, {"is_compatible": True})
    for query in ("", "?permanent=true"):
        assert rest("DELETE", f"/subjects/two{query}") == (200, [1])
    rest.register("two", SPARE)
    rest.register("one", one, references=named)
    resolved = json.loads(rest.raw("GET", "/subjects/one/versions/1/schema?format=resolved")[1])
    assert resolved["fields"][0]["type"] == SPARE


def test_schemas_with_equal_normal_forms_are_one(rest):
    first = {"type": "record", "name": "n.R", "fields": [], "z": 1, "a": 2}
    second = {"a": 2, "fields": [], "z": 1, "namespace": "n", "name": "R", "type": "record"}
    assert rest.register("s", first, "?normalize=true")[1]["id"] == 1
    assert rest.register("s", second, "?normalize=true")[1]["id"] == 1
    third = {**first, "a": 3}
    assert rest.register("s", third)[1]["id"] == 2
    rest("PUT", "/config/s", {"normalize": True})
    assert rest.register("s", third)[1]["id"] == 3


def test_json_schemas_are_registered(rest):
    text = '{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}'
    assert rest.register("s", text, schemaType="JSON")[1] == {
        "id": 1,
        "version": 1,
        "schemaType": "JSON",
        "schema": text,
    }
    assert rest("GET", "/schemas/ids/1")[1]["schema"] == text
    status, answer = rest.register("s", text.replace("string", "integer"), schemaType="JSON")
    assert (status, answer["error_code"]) == (409, 40901)
    assert '{errorType:"TYPE_CHANGED", description:"A type at path' in answer["message"]
    assert "different schema type" in rest.register("s", LONG)[1]["message"]
    named = [{"name": "s.json", "subject": "s", "version": 1}]
    one = {"type": "array", "items": {"$ref": "s.json"}}
    assert rest.register("one", one, schemaType="JSON", references=named)[1]["id"] == 2
    assert rest.register("two", one, schemaType="JSON")[1]["error_code"] == 42201


def test_protobuf_schemas_are_registered(rest):
    pytest.importorskip("grpc_tools", exc_type=ImportError)
    text = 'syntax = "proto3";\n\nmessage M {\n  int32 a = 1;\n}\n'
    body = {"schemaType": "PROTOBUF"}
    assert rest.register("s", text, **body) == (200, {"id": 1, "version": 1, **body})
    assert rest("GET", "/schemas/ids/1")[1]["schema"] == text
    descriptor = rest("GET", "/schemas/ids/1?format=serialized")[1]["schema"]
    assert rest.register("s", descriptor, **body)[1]["id"] == 1
    assert rest.register("s", text.replace("int32", "string"), **body)[1]["error_code"] == 40901
    named = [{"name": "m.proto", "subject": "s", "version": 1}]
    one = 'syntax = "proto3"; import "m.proto"; message One { M m = 1; }'
    assert rest.register("one", one, references=named, **body)[1]["references"] == named
    assert rest.register("two", one, **body)[1]["error_code"] == 42201


def test_metadata_and_rules_are_kept(rest):
    metadata = {"properties": {"owner": "shop"}}
    assert rest.register("s", TWO, metadata=metadata)[1]["metadata"] == metadata
    assert rest("GET", "/subjects/s/versions/1")[1]["metadata"] == metadata


def test_records_have_the_format_of_the_real_registry(server, rest):
    rest.register("s", TWO)
    rest("PUT", "/config", {"compatibility": "NONE"})
    rest("PUT", "/mode/s", {"mode": "READONLY"})
    rest("DELETE", "/mode/s")
    rest("DELETE", "/subjects/s")
    rest("DELETE", "/subjects/s?permanent=true")
    records = [(record.key.decode(), record.value) for record in server.consume("_schemas")]
    text = json.dumps(json.dumps(TWO, separators=(",", ":"))).encode()
    assert records == [
        (
            '{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            b'{"subject":"s","version":1,"id":1,"schema":' + text + b',"deleted":false}',
        ),
        ('{"keytype":"CONFIG","magic":0}', b'{"compatibilityLevel":"NONE"}'),
        ('{"keytype":"MODE","subject":"s","magic":0}', b'{"subject":"s","mode":"READONLY"}'),
        ('{"keytype":"MODE","subject":"s","magic":0}', None),
        ('{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}', b'{"subject":"s","version":1}'),
        ('{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', None),
    ]


def test_records_of_confluents_registry_are_read_and_others_ignored(server, rest):
    topic = "_schemas"
    rest("GET", "/subjects")
    server.produce(topic, None, key='{"keytype":"NOOP","magic":0}')
    value = {"subject": "s", "version": 3, "id": 9, "md5": "x", "schema": LONG, "deleted": False, "ts": 1}
    server.produce(topic, json.dumps(value), key='{"keytype":"SCHEMA","subject":"s","version":3,"magic":1}')
    deep = "[" * 100_000
    others = (("x", "y"), ("[]", "1"), ('{"keytype":"SCHEMA"}', "{}"), ('{"keytype":"MODE"}', "[]"), (deep, "1"))
    for key, other in others:
        server.produce(topic, other, key=key)
    for field in ("id", "version", "subject", "schema", "schemaType"):
        wrong = {**value, "version": 4, field: ["x"] if field in ("subject", "schema", "schemaType") else "x"}
        server.produce(topic, json.dumps(wrong), key='{"keytype":"SCHEMA","subject":"s","version":3,"magic":1}')
    (extension,) = server.server.extensions
    extension.clear()
    assert rest("GET", "/subjects/s/versions/3")[1]["id"] == 9
    assert rest("GET", "/subjects/s/versions") == (200, [3])
    assert rest.register("t", '"int"')[1]["id"] == 10


def test_settings_of_a_subject_precede_the_global_ones(rest):
    rest("PUT", "/config", {"compatibility": "NONE", "normalize": True})
    rest("PUT", "/config/s", {"normalize": False})
    expected = {"compatibilityLevel": "BACKWARD", "normalize": False}
    assert rest("GET", "/config/s") == rest("GET", "/config/s?defaultToGlobal=true") == (200, expected)


def test_a_failed_write_to_the_topic_is_an_error(server, rest):
    rest.register("s", TWO)
    server.admin.delete_topics("_schemas")
    assert rest.register("s", SPARE)[1]["error_code"] == 50001
    assert rest("GET", "/subjects") == (200, [])


def test_references_that_nest_deeply_are_refused(server, rest):
    rest("GET", "/subjects")
    for number in range(401):
        named, fields = [], []
        if number:
            named = [{"name": f"R{number - 1}", "subject": f"r{number - 1}", "version": 1}]
            fields = [{"name": "f", "type": f"R{number - 1}"}]
        text = json.dumps({"type": "record", "name": f"R{number}", "fields": fields})
        value = {"subject": f"r{number}", "version": 1, "id": number, "references": named, "schema": text}
        key = {"keytype": "SCHEMA", "subject": f"r{number}", "version": 1, "magic": 1}
        server.produce("_schemas", json.dumps(value), key=json.dumps(key))
    (extension,) = server.server.extensions
    extension.clear()
    status, answer = rest("GET", "/subjects/r400/versions/1?format=resolved")
    assert (status, answer["error_code"]) == (422, 42201)
    assert rest("GET", "/subjects/r400/versions") == (200, [1])
