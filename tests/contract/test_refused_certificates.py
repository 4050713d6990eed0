"""Audit events have the subject and issuer of a refused client certificate, whether OpenSSL or klamm has refused it."""

import json
import ssl
from datetime import timedelta

import pytest

from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm_spark.queries.event_views import DuckDbViews, Period
from klamm_spark.report.command import answer
from klamm_spark.terminal.formats import FORMATS
from tests.audit_spool import events_of, lines_of
from tests.tls_files import TlsFiles, revocation_list
from tests.waiting import wait_until

CERTIFICATE = ("certificate_subject", "certificate_issuer", "certificate_serial_number")
OURS, FOREIGN = "CN=klamm test CA", "CN=foreign CA"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return TlsFiles(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def refused(tmp_path, files):
    """Return `refused(client, **settings)`, which returns the event of a handshake that the server refuses."""

    def handshake(client, version=ssl.TLSVersion.TLSv1_3, **settings):
        spool = tmp_path / "spool"
        options = ('observers=["audit"]', f"audit.spool={spool}", "audit.node=node-1", "audit.flush_interval_ms=5",
                   "connection_failed_authentication_delay_ms=20")  # fmt: skip
        lines = [f"listeners.default.{option}" for option in options]
        lines += files.server_settings(**{"client_auth": "required", **settings})
        with EmbeddedServer(lines) as server:
            context = files.client_context(client, version=version)
            with (
                pytest.raises((ssl.SSLError, ConnectionError)),
                RawClient(server.address(), ssl_context=context, server_hostname="localhost") as there,
            ):
                there.call(ApiVersionsRequest("test", "1"), 3)
            wait_until(lambda: any(b'"action":"failure"' in line for line in lines_of(spool, unsealed=True)))
        (event,) = (event for event in events_of(spool) if event["kind"] == "authentication")
        handshake.spool = spool
        return event

    return handshake


def shown(event):
    return tuple(event.get(name) for name in CERTIFICATE)


def serial_number(client):
    return f"{client.identity.certificate.serial_number:x}"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_certificate_of_a_foreign_authority_is_refused_and_recorded(refused, tmp_path, version):
    """OpenSSL refuses the certificate during the handshake."""
    client = TlsFiles(tmp_path / "foreign", name="foreign CA").client
    event = refused(client, version)
    assert shown(event) == ("CN=alice,OU=tests,O=klamm", FOREIGN, serial_number(client))
    assert (event["outcome"], event["principal"], event["sni"]) == ("denied", "User:ANONYMOUS", "localhost")
    # An unproven subject must not count as an account whose password was guessed.
    assert "attempted_principal" not in event


def test_an_expired_certificate_is_refused_and_recorded(refused, files):
    old = files.authority.issue("CN=old", now=files.now - timedelta(days=4000))
    assert shown(refused(files.write("old", old)))[:2] == ("CN=old", OURS)


def test_a_revoked_certificate_is_refused_and_recorded(refused, files, tmp_path):
    lists = tmp_path / "lists.pem"
    lists.write_bytes(revocation_list(files.authority, [files.client.identity.certificate], now=files.now))
    event = refused(files.client, revocation_lists=json.dumps([str(lists)]))
    assert "revoked" in event["reason"]
    assert shown(event)[:2] == ("CN=alice,OU=tests,O=klamm", OURS)


def test_certificate_that_no_rule_maps_is_refused_and_recorded(refused, files):
    """OpenSSL accepts the certificate, and klamm refuses it."""
    event = refused(files.client, principal_mapping_rules="RULE:^CN=(bob).*$/$1/")
    assert shown(event) == ("CN=alice,OU=tests,O=klamm", OURS, serial_number(files.client))


def test_an_event_without_a_certificate_has_no_subject(refused):
    event = refused(None)
    assert "no certificate" in event["reason"]
    assert shown(event) == (None, None, None)


def test_a_certificate_of_more_than_8_kib_is_not_read(refused, tmp_path):
    """Any client can send such a certificate, with thousands of names."""
    foreign = TlsFiles(tmp_path / "foreign", name="foreign CA")
    names = [f"{number:060}.example.org" for number in range(200)]
    assert shown(refused(foreign.issue("large", "CN=large", hosts=names))) == (None, None, None)


def test_every_command_that_prints_events_names_the_certificate(refused, tmp_path):
    event = refused(TlsFiles(tmp_path / "foreign", name="foreign CA").client)
    subject = "CN=alice,OU=tests,O=klamm"
    assert f" certificate_subject={subject} certificate_issuer={FOREIGN} " in FORMATS["text"](event)
    rendered = json.loads(FORMATS["ocsf"](event))
    assert rendered["user"]["uid"] == f"User:{subject}"
    assert (rendered["certificate"]["subject"], rendered["certificate"]["issuer"]) == (subject, FOREIGN)
    cef = FORMATS["cef"](event).replace("\\", "")
    assert f" suser=User:{subject} " in cef
    assert f"flexString2={FOREIGN}" in cef
    views = DuckDbViews(refused.spool, Period())
    try:
        assert answer(views, "here").tables["failed_accounts"].rows[0][0] == subject
    finally:
        views.close()
