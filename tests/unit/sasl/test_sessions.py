"""Sessions that end, and re-authentication (KIP-368)."""

import pytest

from klamm import ErrorCode
from klamm_sasl.states import SaslState
from tests.unit.sasl.playbook import ALICE, Playbook

HANDSHAKE, AUTHENTICATE, METADATA = 17, 36, 3
HOUR_MS = 3_600_000


def in_session(**settings):
    book = Playbook(**settings)
    book.handshake()
    step, response = book.token(b"user alice")
    assert step.complete
    return book, response


def again(book, mechanism="SCRIPTED"):
    assert book.authenticator.reauthenticates(HANDSHAKE)
    return book.handshake(mechanism)


def test_a_session_ends_after_the_time_that_is_set():
    book, response = in_session(max_reauth_ms=HOUR_MS)
    assert response.session_lifetime_ms == HOUR_MS
    assert book.authenticator.session_expires_ns == book.clock.monotonic_ns() + HOUR_MS * 1_000_000


@pytest.mark.parametrize(
    ("max_reauth_ms", "expires_in_ms", "lifetime_ms"), [(0, 5000, 5000), (HOUR_MS, 5000, 5000), (1000, 5000, 1000)]
)
def test_a_session_ends_with_what_it_was_opened_with(max_reauth_ms, expires_in_ms, lifetime_ms):
    book = Playbook(max_reauth_ms=max_reauth_ms)
    book.handshake()
    _, response = book.token(b"until %d" % (book.clock.wall_ms() + expires_in_ms))
    assert response.session_lifetime_ms == lifetime_ms
    assert book.authenticator.session_expires_ns == book.clock.monotonic_ns() + lifetime_ms * 1_000_000


def test_what_has_expired_already_gives_no_time():
    book = Playbook()
    book.handshake()
    _, response = book.token(b"until %d" % (book.clock.wall_ms() - 5000))
    assert response.session_lifetime_ms == 0
    assert book.authenticator.session_expires_ns == book.clock.monotonic_ns()


def test_without_an_end_there_is_no_reauthentication():
    book, response = in_session()
    assert response.session_lifetime_ms == 0
    assert not book.authenticator.reauthenticates(HANDSHAKE)


def test_a_session_is_renewed():
    book, _ = in_session(max_reauth_ms=HOUR_MS)
    first = book.authenticator.session_expires_ns
    book.clock.advance_ms(1000)
    assert not book.authenticator.reauthenticates(METADATA)
    assert not book.authenticator.reauthenticates(AUTHENTICATE)
    step, response = again(book)
    assert response.error_code == 0
    assert not book.authenticator.complete
    assert all(book.authenticator.reauthenticates(key) for key in (METADATA, AUTHENTICATE, HANDSHAKE))
    assert not book.token(b"challenge")[0].complete
    step, response = book.token(b"later user alice")
    assert step.complete
    assert response.session_lifetime_ms == HOUR_MS
    assert book.authenticator.session_expires_ns == first + 1000 * 1_000_000


def test_at_most_once_a_second():
    book, _ = in_session(max_reauth_ms=HOUR_MS)
    again(book)
    book.token(b"user alice")
    book.clock.advance_ms(999)
    assert not book.authenticator.reauthenticates(HANDSHAKE)
    book.clock.advance_ms(1)
    assert book.authenticator.reauthenticates(HANDSHAKE)


def test_the_principal_must_not_change():
    book, _ = in_session(max_reauth_ms=HOUR_MS)
    again(book)
    step, response = book.token(b"user bob")
    assert step.failed
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert response.error_message == ("Cannot change principals during re-authentication from User.alice: User.bob")
    assert book.state is SaslState.FAILED
    assert book.authenticator.principal == ALICE


def test_the_mechanism_must_not_change():
    book, _ = in_session(max_reauth_ms=HOUR_MS)
    _, response = again(book, "OTHER")
    assert response.error_code == 0, "as in Kafka, the next request fails"
    assert book.state is SaslState.REAUTH_BAD_MECHANISM
    step, response = book.token(b"user alice")
    assert response is None
    assert step.failed
    assert book.connection.sasl_mechanism == "SCRIPTED"


def test_an_unknown_mechanism():
    book, _ = in_session(max_reauth_ms=HOUR_MS)
    step, response = again(book, "NONSENSE")
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert step.failed


def test_wrong_credentials_say_so():
    book, _ = in_session(max_reauth_ms=HOUR_MS)
    again(book)
    step, response = book.token(b"no")
    assert step.failed
    assert response.error_message.startswith("Authentication failed during re-authentication due to invalid")


def test_a_renewed_session_may_have_another_end():
    book = Playbook()
    book.handshake()
    book.token(b"until %d" % (book.clock.wall_ms() + 5000))
    again(book)
    _, response = book.token(b"user alice")
    assert response.session_lifetime_ms == 0
    assert book.authenticator.session_expires_ns is None
