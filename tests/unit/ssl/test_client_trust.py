"""Tests of accepted client certificates after changes of the trust store, of revocation lists, and of time."""

import functools
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from klamm import Address, KafkaPrincipal, ListenerContext, ServerServices
from klamm.testing import ManualClock
from klamm_ssl.client_trust import ClientTrust, chain_of
from klamm_ssl.contexts import certificates_of, revocation_lists_of
from klamm_ssl.issuing import CertificateAuthority
from klamm_ssl.ssl_settings import SslSettings
from klamm_ssl.transport import SslTransport
from tests.tls_files import TlsFiles, revocation_list

NOW = datetime.now(UTC)
UNTRUSTED = "no trusted authority issued the client certificate"


def der(certificate):
    return certificate.public_bytes(Encoding.DER)


ROOT = CertificateAuthority.create("CN=root", now=NOW)
BELOW = ROOT.intermediate("CN=below", now=NOW)
NAMESAKE = CertificateAuthority.create("CN=root", now=NOW)
ALICE, BOB = BELOW.issue("CN=alice", now=NOW), BELOW.issue("CN=bob", now=NOW)
(ROOT_DER,) = certificates_of(ROOT.root_pem.decode())
(NAMESAKE_DER,) = certificates_of(NAMESAKE.root_pem.decode())
BELOW_DER = der(BELOW.identity.certificate)
WHOLE = chain_of([der(ALICE.certificate), BELOW_DER, ROOT_DER])
SHORT = chain_of([der(ALICE.certificate), BELOW_DER])
ALONE = chain_of([der(ALICE.certificate)])


def lists(authority, *revoked):
    return list(revocation_lists_of(revocation_list(authority, revoked, now=NOW).decode()))


def trust(*authorities, revoked=(), leaf_only=False):
    return ClientTrust(authorities, revoked, leaf_only=leaf_only)


@pytest.mark.parametrize(
    ("authorities", "chain", "reason"),
    [
        ((ROOT_DER,), WHOLE, None),
        ((BELOW_DER,), WHOLE, None),
        ((der(ALICE.certificate),), WHOLE, None),
        ((NAMESAKE_DER, ROOT_DER), WHOLE, None),
        ((NAMESAKE_DER,), WHOLE, UNTRUSTED),
        ((), WHOLE, UNTRUSTED),
        # The handshake trusted an intermediate authority. Now the authority above it is trusted instead.
        ((ROOT_DER,), SHORT, None),
        ((NAMESAKE_DER,), SHORT, UNTRUSTED),
        ((NAMESAKE_DER, b"not readable"), WHOLE, None),
    ],
)
def test_a_certificate_needs_a_trusted_authority(authorities, chain, reason):
    assert trust(*authorities).rejection_reason(chain, is_whole=True) == reason


def test_the_authorities_of_a_resumed_session_are_not_known():
    assert trust(NAMESAKE_DER).rejection_reason(ALONE, is_whole=False) is None
    revoked = lists(BELOW, ALICE.certificate)
    assert (
        trust(NAMESAKE_DER, revoked=revoked).rejection_reason(ALONE, is_whole=False)
        == "the client certificate was revoked"
    )


@pytest.mark.parametrize("leaf_only", [True, False])
def test_a_certificate_in_a_revocation_list_is_no_longer_trusted(leaf_only):
    def rejection_reason(*revoked):
        return trust(ROOT_DER, revoked=revoked, leaf_only=leaf_only).rejection_reason(WHOLE, is_whole=True)

    assert rejection_reason(*lists(BELOW, ALICE.certificate)) == "the client certificate was revoked"
    assert rejection_reason(*lists(BELOW, BOB.certificate)) is None
    # This has the same serial number, but another authority.
    assert rejection_reason(*lists(NAMESAKE, ALICE.certificate)) is None
    of_authority = rejection_reason(*lists(ROOT, BELOW.identity.certificate))
    assert of_authority == (None if leaf_only else "the certificate of an authority was revoked")


def test_equal_authorities_are_kept_once():
    other = chain_of([der(BOB.certificate), BELOW_DER, ROOT_DER])
    assert other[1] is WHOLE[1]
    assert other[2] is WHOLE[2]


class Layer:
    """A connection's transport."""

    principal = KafkaPrincipal("alice")

    def __init__(self):
        self.ended = None

    def end_session(self, reason):
        self.ended = reason


def test_a_certificate_that_expires_ends_its_connection_with_an_event(tmp_path):
    files = TlsFiles(tmp_path)
    clock = ManualClock(wall_ms=int(files.now.timestamp() * 1000))
    here = Address("127.0.0.1", 1)
    services = ServerServices(clock)
    listener = ListenerContext("front", here, here, "SSL", services)
    events = []
    services.admin_events.subscribe(events.append)
    transport = SslTransport(SslSettings(certificate=files.server.both, trust_store=files.ca, client_auth="required"))
    transport.open(listener)
    soon = files.issue("soon", "CN=alice", days=1)
    layer, other = Layer(), Layer()
    begin = functools.partial(transport._begin_session, transport._client_trust, transport._mapper)
    begin(layer, [der(soon.identity.certificate)], True)
    forget = begin(other, [der(soon.identity.certificate)], True)
    forget()
    left_ms = int(soon.identity.certificate.not_valid_after_utc.timestamp() * 1000) - clock.wall_ms()
    clock.advance_ms(left_ms - 1)
    services.scheduler.run_due()
    assert layer.ended is None
    clock.advance_ms(1)
    services.scheduler.run_due()
    assert layer.ended == "the client certificate has expired"
    assert other.ended is None
    ended = [event.detail for event in events if event.action == "sessions_ended"]
    assert ended == ["the client certificate has expired: connections of User:alice (1)"]
    transport.close()
