"""Tests of sessions that end, and of re-authentication (KIP-368)."""

import pytest

from klamm import ErrorCode
from klamm_sasl.states import SaslState
from tests.unit.sasl.playbook import ALICE, Playbook

HANDSHAKE, AUTHENTICATE, METADATA = 17, 36, 3
HOUR_MS = 3_600_000


def in_session(**settings):
    playbook = Playbook(**settings)
    playbook.handshake()
    step, response = playbook.token(b"user alice")
    assert step.complete
    return playbook, response


def again(playbook, mechanism="SCRIPTED"):
    assert playbook.authenticator.reauthenticates(HANDSHAKE)
    return playbook.handshake(mechanism)


def test_a_session_ends_after_the_configured_time():
    playbook, response = in_session(max_reauth_ms=HOUR_MS)
    assert response.session_lifetime_ms == HOUR_MS
    assert playbook.authenticator.session_expires_ns == playbook.clock.monotonic_ns() + HOUR_MS * 1_000_000


@pytest.mark.parametrize(
    ("max_reauth_ms", "expires_in_ms", "lifetime_ms"), [(0, 5000, 5000), (HOUR_MS, 5000, 5000), (1000, 5000, 1000)]
)
def test_a_session_ends_with_its_credential(max_reauth_ms, expires_in_ms, lifetime_ms):
    playbook = Playbook(max_reauth_ms=max_reauth_ms)
    playbook.handshake()
    _, response = playbook.token(b"until %d" % (playbook.clock.wall_ms() + expires_in_ms))
    assert response.session_lifetime_ms == lifetime_ms
    assert playbook.authenticator.session_expires_ns == playbook.clock.monotonic_ns() + lifetime_ms * 1_000_000


def test_an_expired_credential_gives_no_session_time():
    playbook = Playbook()
    playbook.handshake()
    _, response = playbook.token(b"until %d" % (playbook.clock.wall_ms() - 5000))
    assert response.session_lifetime_ms == 0
    assert playbook.authenticator.session_expires_ns == playbook.clock.monotonic_ns()


def test_a_session_without_an_end_cannot_reauthenticate():
    playbook, response = in_session()
    assert response.session_lifetime_ms == 0
    assert not playbook.authenticator.reauthenticates(HANDSHAKE)


def test_a_session_is_renewed():
    playbook, _ = in_session(max_reauth_ms=HOUR_MS)
    first = playbook.authenticator.session_expires_ns
    playbook.clock.advance_ms(1000)
    assert not playbook.authenticator.reauthenticates(METADATA)
    assert not playbook.authenticator.reauthenticates(AUTHENTICATE)
    step, response = again(playbook)
    assert response.error_code == 0
    assert not playbook.authenticator.complete
    assert all(playbook.authenticator.reauthenticates(key) for key in (METADATA, AUTHENTICATE, HANDSHAKE))
    assert not playbook.token(b"challenge")[0].complete
    step, response = playbook.token(b"later user alice")
    assert step.complete
    assert response.session_lifetime_ms == HOUR_MS
    assert playbook.authenticator.session_expires_ns == first + 1000 * 1_000_000


def test_client_reauthenticates_at_most_once_a_second():
    playbook, _ = in_session(max_reauth_ms=HOUR_MS)
    again(playbook)
    playbook.token(b"user alice")
    playbook.clock.advance_ms(999)
    assert not playbook.authenticator.reauthenticates(HANDSHAKE)
    playbook.clock.advance_ms(1)
    assert playbook.authenticator.reauthenticates(HANDSHAKE)


def test_the_principal_must_not_change():
    playbook, _ = in_session(max_reauth_ms=HOUR_MS)
    again(playbook)
    step, response = playbook.token(b"user bob")
    assert step.failed
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert response.error_message == ("Cannot change principals during re-authentication from User.alice: User.bob")
    assert playbook.state is SaslState.FAILED
    assert playbook.authenticator.principal == ALICE


def test_the_mechanism_must_not_change():
    playbook, _ = in_session(max_reauth_ms=HOUR_MS)
    _, response = again(playbook, "OTHER")
    assert response.error_code == 0, "as in Kafka, the next request fails"
    assert playbook.state is SaslState.REAUTH_BAD_MECHANISM
    step, response = playbook.token(b"user alice")
    assert response is None
    assert step.failed
    assert playbook.connection.sasl_mechanism == "SCRIPTED"


def test_unknown_mechanism_is_refused_in_a_session():
    playbook, _ = in_session(max_reauth_ms=HOUR_MS)
    step, response = again(playbook, "NONSENSE")
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert step.failed


def test_wrong_credentials_get_their_error():
    playbook, _ = in_session(max_reauth_ms=HOUR_MS)
    again(playbook)
    step, response = playbook.token(b"no")
    assert step.failed
    assert response.error_message.startswith("Authentication failed during re-authentication due to invalid")


def test_a_renewed_session_gets_a_new_end():
    playbook = Playbook()
    playbook.handshake()
    playbook.token(b"until %d" % (playbook.clock.wall_ms() + 5000))
    again(playbook)
    _, response = playbook.token(b"user alice")
    assert response.session_lifetime_ms == 0
    assert playbook.authenticator.session_expires_ns is None
