"""Compares generated messages with the Java client's own classes, and with the Python library kio."""

from __future__ import annotations

import base64
import importlib
import io
import json
import subprocess
from pathlib import Path

import pytest

from klamm.wire.api_keys import SPECS, ApiKey, load, spec_of
from klamm.wire.error_responses import error_response
from klamm.wire.errors import ErrorCode
from klamm.wire.messages import create_acls, delete_acls, describe_acls
from klamm.wire.struct_base import WireStruct
from tests.oracles.samples import samples
from tests.peers.kafka_jars import classpath, jar
from tools.generate_errors import rows_of_java
from tools.messages.descriptions import COMMITTED, COMMITTED_RECORDS, OLD, as_committed, from_jars, records_from_jars
from tools.messages.schema import snake

pytestmark = pytest.mark.interop

GONE_SINCE_OLD = {4, 5, 6, 7}


@pytest.fixture(scope="module")
def raws():
    return {name: raw for name, raw in from_jars().items() if raw.get("apiKey") is not None}


@pytest.fixture(scope="module")
def messages(raws):
    return samples(raws, seed=20261121)


@pytest.fixture(scope="module")
def ask_java(tmp_path_factory):
    """Return `ask_java(lines)`, which asks the Java classes in one run of the JVM.

    `ask_java(lines, OLD)` asks an older client.
    """
    compiled = tmp_path_factory.mktemp("oracle")
    source = Path(__file__).parent / "java" / "MessageOracle.java"
    subprocess.run(["javac", "-cp", classpath(), "-d", str(compiled), str(source)], check=True, timeout=120)

    def ask(lines, version=None):
        in_front = [str(jar("kafka-clients", version))] if version else []
        command = ["java", "-cp", ":".join([*in_front, str(compiled), classpath()]), "MessageOracle"]
        done = subprocess.run(
            command, input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return ask


def is_older_than_current(key, version):
    return key in GONE_SINCE_OLD or version < spec_of(key).min_version


def test_the_committed_descriptions_are_those_of_the_jars():
    assert COMMITTED.read_text() == as_committed(from_jars()), "run python tools/generate_messages.py --from-jars"
    assert COMMITTED_RECORDS.read_text() == as_committed(records_from_jars())


def test_error_codes_are_those_of_java():
    assert [(code.value, code.name, code.retriable) for code in sorted(ErrorCode)] == rows_of_java()


def test_every_message_reads_back_as_it_was_written(messages):
    assert len(messages) > 1300
    for _, _, version, message in messages:
        data = message.encode(version)
        again = type(message).decode(version, b"head" + data, 4)
        assert again.encode(version) == data, (type(message), version, message, again)
        assert plain(again) == plain(message)


def test_java_writes_the_same_bytes_and_reads_the_same_fields(messages, ask_java):
    assert_java_agrees([m for m in messages if not is_older_than_current(m[1], m[2])], ask_java)


def test_an_older_java_client_writes_the_same_bytes_for_removed_versions(messages, ask_java):
    asked = [m for m in messages if is_older_than_current(m[1], m[2])]
    assert {0, 1, 4, 5, 6, 7, 9, 19, 29} <= {key for _, key, _, _ in asked}
    assert_java_agrees(asked, lambda lines: ask_java(lines, OLD))


def assert_java_agrees(asked, ask):
    lines = [f"{kind} {key} {version} {message.encode(version).hex()}" for kind, key, version, message in asked]
    answers = ask(lines)
    assert len(answers) == len(asked)
    for (kind, key, version, message), line, answer in zip(asked, lines, answers, strict=True):
        what = f"{spec_of(key).name} {kind} v{version}"
        data, _, text = answer.partition(" ")
        assert data == line.rsplit(" ", 1)[1], f"{what}: {answer}"
        assert_same_fields(json.loads(text), message, what)


def assert_same_fields(theirs, ours, what):
    """Check that each field which Java shows has the same name and value here.

    Equal bytes alone would not show swapped fields.
    """
    names = {name.replace("_", ""): name for name in ours.__slots__}
    for name, value in theirs.items():
        if name.endswith("SizeInBytes") or (name.lower().endswith("records") and value == ""):
            continue
        mine = getattr(ours, names[name.lower()])
        assert_same_value(value, mine, f"{what}.{name}")


def assert_same_value(theirs, mine, what):
    if isinstance(theirs, dict):
        if mine is not None:
            assert_same_fields(theirs, mine, what)
    elif isinstance(mine, list):
        assert len(theirs) == len(mine), what
        for their_item, my_item in zip(theirs, mine, strict=True):
            assert_same_value(their_item, my_item, what)
    elif isinstance(mine, (bytes, memoryview)):
        padded = theirs + "=" * (-len(theirs) % 4)
        assert base64.b64decode(padded, altchars=b"-_" if "-" in theirs or "_" in theirs else None) == bytes(mine), what
    else:
        assert theirs == mine, what


def plain(value):
    """Return a message as plain values. Absent tagged structs equal default ones, because they have the same bytes."""
    if isinstance(value, WireStruct):
        fields = {name: plain(getattr(value, name)) for name in value.__slots__}
        return None if fields == {name: plain(getattr(type(value)(), name)) for name in value.__slots__} else fields
    if isinstance(value, list):
        return [plain(item) for item in value]
    return bytes(value) if isinstance(value, memoryview) else value


def test_kio_reads_and_writes_the_same_bytes(messages):
    from kio.serial import entity_reader, entity_writer

    checked = set()
    for kind, key, version, message in messages:
        name = snake(spec_of(key).name)
        try:
            module = importlib.import_module(f"kio.schema.{name}.v{version}.{kind}")
        except ModuleNotFoundError:
            continue
        entity = vars(module)[f"{spec_of(key).name}{kind.title()}"]
        data = message.encode(version)
        try:
            read = entity_reader(entity)(data, 0)
        except Exception as error:
            if type(error).__name__ in REFUSED_BY_KIO or isinstance(error, (OverflowError, ValueError)):
                continue
            raise
        decoded = read[0]
        with io.BytesIO() as out:
            entity_writer(entity)(out, decoded)
            assert out.getvalue() == data, f"{name} {kind} v{version}"
        checked.add((key, kind))
    assert len(checked) > 120


REFUSED_BY_KIO = {"OutOfBoundValue", "UnexpectedNull"}


@pytest.mark.parametrize("text", ["-", "why"])
def test_error_responses_are_those_of_java(raws, ask_java, text):
    """For every API with an error response in Java, the same errors are at the same places."""
    asked = [
        (key, version, request)
        for seed in (7, 8, 9)
        for kind, key, version, request in samples(raws, seed)
        if kind == "request" and spec_of(key).min_version <= version <= spec_of(key).max_version
        if key not in GONE_SINCE_OLD and key not in REFUSED_BY_JAVA
    ]
    code = ErrorCode.KAFKA_STORAGE_ERROR
    answers = ask_java([f"error {key} {version} {code} {text} {r.encode(version).hex()}" for key, version, r in asked])
    compared, differing = set(), {}
    for (key, version, request), answer in zip(asked, answers, strict=True):
        if answer.startswith("failed: java.lang.NullPointerException"):
            continue
        name = spec_of(key).name
        ours = error_response(request, version, code, None if text == "-" else text, 7)
        read = vars(load(key))[f"{name}Response"].decode
        ours = None if ours is None else read(version, ours.encode(version))
        theirs = None if answer == "none" else read(version, bytes.fromhex(answer))
        compared.add(key)
        if name in MERGED_BY_JAVA and theirs is not None:
            assert set(values_of(ours, "error_code")) <= {code}
        elif essence(theirs) != essence(ours):
            differing.setdefault(name, f"v{version}\n  java {theirs}\n  ours {ours}")
        if text in values_of(theirs, "error_message"):
            assert set(values_of(ours, "error_message")) == {text}, name
        assert set(values_of(theirs, "throttle_time_ms")) - {0} <= set(values_of(ours, "throttle_time_ms")), name
    assert not differing, "\n".join(f"{name} {text}" for name, text in differing.items())
    assert compared == {spec.api_key for spec in SPECS} - GONE_SINCE_OLD - REFUSED_BY_JAVA


@pytest.mark.parametrize("version", [1, 2, 3])
def test_error_responses_to_acl_requests_are_those_of_java(ask_java, version):
    topic, literal, read, allow = 2, 3, 3, 3
    requests = [
        describe_acls.DescribeAclsRequest(topic, None, literal, None, None, read, allow),
        create_acls.CreateAclsRequest(
            [create_acls.AclCreation(topic, "t", literal, "User:a", "*", read, allow) for _ in range(2)]
        ),
        delete_acls.DeleteAclsRequest(
            [delete_acls.DeleteAclsFilter(topic, "t", literal, None, None, read, allow) for _ in range(3)]
        ),
    ]
    code = ErrorCode.SECURITY_DISABLED
    answers = ask_java([f"error {r.API_KEY} {version} {code} why {r.encode(version).hex()}" for r in requests])
    assert answers == [error_response(r, version, code, "why", 7).encode(version).hex() for r in requests]


REFUSED_BY_JAVA = {ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS}
"""Java parses these only with numbers of its enums; see the test of ACL requests."""

MERGED_BY_JAVA = {"Produce", "WriteTxnMarkers"}
"""Java's responses have each topic and partition once, however often the request names it."""


def values_of(response, name):
    """Yield all values of fields with this name, at any depth."""
    if isinstance(response, WireStruct):
        own = [getattr(response, name)] if name in response.__slots__ else []
        return own + [value for slot in response.__slots__ for value in values_of(getattr(response, slot), name)]
    return [value for item in response for value in values_of(item, name)] if isinstance(response, list) else []


def essence(response):
    """Return a response without parts that Java sets only sometimes: texts, the throttle time, and an order."""
    if isinstance(response, WireStruct):
        left_out = ("error_message", "throttle_time_ms")
        return [(name, essence(getattr(response, name))) for name in response.__slots__ if name not in left_out]
    if isinstance(response, list):
        return sorted((essence(item) for item in response), key=repr)
    return bytes(response) if isinstance(response, memoryview) else response
