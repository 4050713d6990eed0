"""Pseudonyms: the spool has no name of an account and no address, and a name has the same pseudonym everywhere."""

import ipaddress
import json
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm import AdminEvent, KafkaPrincipal
from klamm.acl import AclBinding, AclOperation, AclPermission, PatternType, ResourceType, Verdict
from klamm.wire.api_keys import spec_of
from klamm_spark.cli import main
from klamm_spark.events.event import ATTRIBUTE_FIELDS, FIELDS, RESOURCE_FIELDS
from klamm_spark.events.pseudonyms import KINDS, Pseudonyms
from klamm_spark.requests.state_changes import STATE_CHANGES
from klamm_spark.spool.signatures import KeyFileError, write_key
from tests.unit.audit.changes import CASES
from tests.unit.audit.observing import Observing, close_files, ping
from tests.unit.audit.test_intents import crash, interrupted, journal_of, start_creation

NAMES = re.compile(r'["=:](alice|User:m|bob|eve|10\.0\.0\.[19])["=:,]')
PERSONAL = {
    *("principal", "attempted_principal", "certificate_subject", "client_address", "connection_id", "detail", "reason"),
    *("acl_principal", "acl_host", "name", "value", "acl_name"),
}
IMPERSONAL = {
    *("event_id", "node", "boot", "kind", "action", "outcome", "listener", "transport", "security_protocol"),
    *("tls_version", "tls_cipher", "sni", "sasl_mechanism", "certificate_issuer", "certificate_serial_number"),
    *("client_id", "client_software_name", "client_software_version", "api_name", "intent_id", "error_name"),
    *("gap_boot", "type", "operation", "decided_by", "acl_operation", "acl_pattern_type", "old_value", "new_value"),
}
ATTRIBUTES = {"principal", "host", "owner", "renewer", "entity"}


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    path = tmp_path_factory.mktemp("key") / "key"
    write_key(path)
    return path


@pytest.fixture
def names(key):
    return Pseudonyms(KINDS, key.read_bytes())


@pytest.fixture
def private(make, key):
    return make(pseudonyms=KINDS, pseudonym_key=key)


def test_each_text_of_an_event_is_known_to_have_names_or_none():
    """A new field or attribute must be added to one of these lists. With names in it, it must also be replaced."""
    texts = {field.name for field in (*FIELDS, *RESOURCE_FIELDS, *ATTRIBUTE_FIELDS) if field.type == "string"}
    assert texts == PERSONAL | IMPERSONAL
    attributes = {name for change in STATE_CHANGES.values() for name in change.attributes}
    assert attributes >= ATTRIBUTES
    assert {
        name for name in attributes if any(word in name for word in ("princ", "host", "user", "owner"))
    } <= ATTRIBUTES


@pytest.mark.parametrize("api_key", CASES, ids=lambda each: each.name)
def test_events_of_changes_contain_no_name(private, api_key):
    request, response, _ = CASES[api_key]
    event = private.request(private.connection(), request, response, version=spec_of(api_key).max_version)
    private.observer.starting(event.request, event.context)
    private.complete(event)
    (written,) = private.requests()
    assert written["principal"].startswith("User:~")
    for text in (json.dumps(written), journal_of(private).decode()):
        assert not NAMES.search(text)


def test_an_intent_keeps_its_pseudonyms_when_a_crash_makes_an_event_of_it(tmp_path, key, names):
    first = Observing(tmp_path, pseudonyms=KINDS, pseudonym_key=key)
    start_creation(first)
    crash(first)
    (event,) = interrupted(Observing(tmp_path, pseudonyms=KINDS, pseudonym_key=key))
    assert event["principal"] == names.account("User:alice")
    assert event["client_address"] == names.address("10.0.0.9")


def test_a_name_has_the_same_pseudonym_everywhere(private, names):
    acl = AclBinding(
        ResourceType.USER,
        "alice",
        PatternType.LITERAL,
        "User:alice",
        "10.0.0.9",
        AclOperation.READ,
        AclPermission.ALLOW,
    )
    event = ping(private, private.connection())
    event.context.decisions = [(AclOperation.DESCRIBE, ResourceType.USER, "alice", True, Verdict(True, "acl", acl))]
    private.complete(event)
    (written,) = private.requests()
    account, address = names.account("alice"), names.address("10.0.0.9")
    assert account[0] == "~"
    assert (written["principal"], written["client_address"]) == (f"User:{account}", address)
    assert ipaddress.ip_address(address).is_private
    (user,) = (one for one in written["resources"] if one["type"] == "USER")
    assert (user["name"], user["acl_name"]) == (account, account)
    assert (user["acl_principal"], user["acl_host"]) == (f"User:{account}", address)


def test_the_rest_of_a_line_stays_unchanged(make, private, key, tmp_path):
    """Byte by byte: numbers keep their digits, so a lake can restore the line from its columns."""
    plain = Observing(tmp_path / "plain")
    lines = []
    for audit in (plain, private):
        connection = audit.connection()
        audit.observer.connection_opened(connection)
        audit.complete(ping(audit, connection))
        audit.flush()
        spool = audit.sink.requests.spool
        lines.append([path.read_bytes() for path in spool.path.glob("*.open")][0].splitlines())
    names = Pseudonyms(KINDS, key.read_bytes())
    assert [names.in_text(line.decode()).encode() for line in lines[0]] == lines[1]
    for one, other in zip(*lines, strict=True):
        before, after = json.loads(one), json.loads(other)
        assert {name for name in before if before[name] != after[name]} == {"principal", "client_address"}
        assert list(before) == list(after)


def test_sentences_in_events_contain_no_names(private, names):
    sentences = {
        "10.0.0.9 has 10 of 10 connections": f"{names.address('10.0.0.9')} has 10 of 10 connections",
        "revoked: connections of User:alice (2)": f"revoked: connections of {names.account('User:alice')} (2)",
        "orders, for User:CN=A B at 10.0.0.9:5": f"orders, for {names.account('User:CN=A B')} at "
        f"{names.address('10.0.0.9')}:5",
        "no rule applies to 'alice@EXAMPLE.ORG'": f"no rule applies to '{names.account('alice@EXAMPLE.ORG')}'",
        "klamm 1.2, at 12:00:05 on [::1] and 127.0.0.1": "klamm 1.2, at 12:00:05 on [::1] and 127.0.0.1",
    }
    for number, sentence in enumerate(sentences):
        private.sink._admin_event(AdminEvent("sessions_ended", sentence, "", False, number))
    events = [event for event in private.events() if event["kind"] == "admin"]
    assert [event["detail"] for event in events] == list(sentences.values())


def test_anonymous_clients_and_this_machine_have_no_pseudonym(names):
    for name in ("User:ANONYMOUS", "User:*", "*", "", "<default>"):
        assert names.account(name) == name
    for address in ("127.0.0.1", "::1", "*", "", "host"):
        assert names.address(address) == address
    assert names.address("10.0.0.9") == names.address("10.0.0.9")
    assert len({names.account(f"User:{number}") for number in range(1000)}) == 1000


@given(name=st.text(min_size=1).filter(lambda name: name not in ("*", "ANONYMOUS", "<default>")))
def test_any_name_is_replaced(tmp_path_factory, name):
    place = tmp_path_factory.mktemp("any")
    write_key(place / "key")
    audit = Observing(place / "spool", pseudonyms=KINDS, pseudonym_key=place / "key")
    audit.complete(ping(audit, audit.connection(KafkaPrincipal(name))))
    (written,) = audit.requests()
    if len(name) < 200:
        assert written["principal"] == Pseudonyms(KINDS, (place / "key").read_bytes()).account(f"User:{name}")
    assert written["principal"].startswith("User:~")
    close_files()


def test_each_kind_of_pseudonym_can_be_selected(make, key):
    audit = make(pseudonyms=("address",), pseudonym_key=key)
    audit.complete(ping(audit, audit.connection()))
    (written,) = audit.requests()
    assert written["principal"] == "User:alice"
    assert written["client_address"].startswith("fd6b:6c61:6d6d:")


def test_another_key_gives_other_pseudonyms_and_without_a_key_no_server_starts(make, key, names, tmp_path):
    write_key(tmp_path / "other")
    assert Pseudonyms(KINDS, (tmp_path / "other").read_bytes()).account("alice") != names.account("alice")
    with pytest.raises(KeyFileError, match="No such file"):
        make(pseudonyms=KINDS, pseudonym_key=tmp_path / "gone")
    key.chmod(0o644)
    try:
        with pytest.raises(KeyFileError, match="can be read by others"):
            make(pseudonyms=KINDS, pseudonym_key=key)
    finally:
        key.chmod(0o600)


def test_the_key_finds_the_events_of_a_person(key, names, capsys, monkeypatch):
    assert main(["pseudonym", "--key", str(key), "User:alice", "10.0.0.9"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{names.account('User:alice')}\tUser:alice",
        f"{names.address('10.0.0.9')}\t10.0.0.9",
    ]
    assert main(["pseudonym", "--key", str(key) + "x", "alice"]) == 2
    assert "No such file" in capsys.readouterr().err


def test_a_line_takes_some_microseconds(names, audit):
    audit.complete(ping(audit, audit.connection()))
    audit.flush()
    (path,) = audit.sink.requests.spool.path.glob("*.open")
    line = path.read_text().splitlines()[0]
    began = time.process_time()
    for _ in range(2_000):
        names.in_text(line)
    assert (time.process_time() - began) / 2_000 < 500e-6
