"""Tests of the authenticator's state machine: every state, every error, and the only way to success."""

import pytest

from klamm import ANONYMOUS, ErrorCode
from klamm.runtime import IllegalTransitionError
from klamm.wire.headers import encode_request_header
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from klamm_sasl.states import TRANSITIONS, SaslState, moved
from tests.unit.sasl.playbook import ALICE, Playbook

INVALID = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRIPTED"


def refused(playbook, step):
    """Check that the client is not authenticated, and cannot become so on this connection."""
    assert step.failed
    assert not step.complete
    assert not playbook.authenticator.complete
    assert playbook.state is SaslState.FAILED
    assert playbook.authenticator.principal == ANONYMOUS
    with pytest.raises(IllegalTransitionError):
        playbook.authenticator.receive(b"anything")
    return True


def test_authentication_follows_the_usual_order():
    playbook = Playbook()
    assert playbook.versions()[1].error_code == 0
    assert playbook.state is SaslState.HANDSHAKE_REQUEST
    step, response = playbook.handshake()
    assert (response.error_code, response.mechanisms) == (0, ["SCRIPTED", "OTHER"])
    step, response = playbook.token(b"challenge")
    assert (response.error_code, response.auth_bytes, response.session_lifetime_ms) == (0, b"and then?", 0)
    assert not step.complete
    step, response = playbook.token(b"user alice")
    assert step.complete
    assert (response.error_code, response.error_message, response.auth_bytes) == (0, "", b"welcome")
    assert playbook.authenticator.complete
    assert playbook.authenticator.principal == ALICE
    assert playbook.authenticator.session_expires_ns is None
    assert playbook.connection.sasl_mechanism == "SCRIPTED"
    assert [server.closed for server in playbook.mechanisms["SCRIPTED"].servers] == [True]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_version_of_sasl_authenticate_is_accepted(version):
    playbook = Playbook()
    playbook.handshake()
    step, response = playbook.token(b"user alice", version)
    assert step.complete
    assert response.auth_bytes == b"welcome"
    assert playbook.cannot_reauthenticate.value == (version == 0)


def test_handshake_may_come_without_api_versions():
    playbook = Playbook()
    playbook.handshake()
    assert playbook.state is SaslState.AUTHENTICATE


def test_handshake_v0_is_followed_by_tokens_without_headers():
    playbook = Playbook()
    playbook.handshake(version=0)
    assert playbook.raw(b"challenge").send == [b"and then?"]
    step = playbook.raw(b"user alice")
    assert step.complete
    assert step.send == [b"welcome"]
    assert playbook.authenticator.principal == ALICE


@pytest.mark.parametrize("token", [b"no", b"tell", b"crash"])
def test_a_token_without_headers_that_fails_gets_no_answer(token):
    playbook = Playbook()
    playbook.handshake(version=0)
    step = playbook.raw(token)
    assert not step.send
    assert refused(playbook, step)


@pytest.mark.parametrize("later", [b"", b"later "])
@pytest.mark.parametrize(
    ("token", "message"),
    [(b"no", INVALID), (b"tell", "wrong on purpose"), (b"crash", INVALID), (b"", INVALID)],
)
def test_wrong_credentials_are_refused(token, message, later, caplog):
    playbook = Playbook()
    playbook.handshake()
    step, response = playbook.token(later + token)
    assert (response.error_code, response.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, message)
    assert response.auth_bytes == b""
    assert refused(playbook, step)
    assert ("ZeroDivisionError" in caplog.text) == (token == b"crash")


def test_the_exchange_continues_after_a_long_check():
    playbook = Playbook()
    playbook.handshake()
    assert not playbook.token(b"later challenge")[0].complete
    assert playbook.state is SaslState.AUTHENTICATE
    assert playbook.token(b"later user alice")[0].complete


def test_no_frame_is_handled_while_a_check_is_pending():
    playbook = Playbook()
    playbook.handshake()
    step = playbook.authenticator.receive(
        encode_request_header(36, 2, 9, "x") + SaslAuthenticateRequest(b"later user alice").encode(2)
    )
    assert step.pending
    assert not playbook.authenticator.complete
    with pytest.raises(IllegalTransitionError):
        playbook.authenticator.receive(b"user alice")


def test_unknown_mechanism_is_refused():
    playbook = Playbook()
    playbook.versions()
    step, response = playbook.handshake("NONSENSE")
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert response.mechanisms == ["SCRIPTED", "OTHER"]
    assert refused(playbook, step)


def test_api_versions_is_accepted_once():
    playbook = Playbook()
    playbook.versions()
    step, response = playbook.versions()
    assert response is None
    assert refused(playbook, step)


def test_api_versions_after_the_handshake_is_an_illegal_state():
    playbook = Playbook()
    playbook.handshake()
    step, response = playbook.versions(2)
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert refused(playbook, step)


@pytest.mark.parametrize(("version", "name"), [(3, "no good name"), (4, "")])
def test_api_versions_may_be_sent_again_after_an_error(version, name):
    playbook = Playbook()
    assert playbook.versions(version, name)[1].error_code == ErrorCode.INVALID_REQUEST
    assert playbook.state is SaslState.HANDSHAKE_OR_VERSIONS_REQUEST
    assert playbook.versions()[1].error_code == 0
    assert playbook.state is SaslState.HANDSHAKE_REQUEST


def test_an_unknown_version_of_api_versions_is_answered_in_version_0():
    playbook = Playbook()
    step = playbook.authenticator.receive(encode_request_header(18, 99, 7, "x") + b"whatever")
    assert bytes(step.send[0])[:6] == (7).to_bytes(4, "big") + ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
    assert playbook.versions(3)[1].error_code == 0


@pytest.mark.parametrize("before", ["nothing", "versions", "bad versions"])
@pytest.mark.parametrize(
    ("message", "version"), [(MetadataRequest(topics=None), 12), (SaslAuthenticateRequest(b"user alice"), 2)]
)
def test_other_requests_before_the_handshake_get_no_answer(before, message, version):
    playbook = Playbook()
    if before != "nothing":
        playbook.versions(name="playbook" if before == "versions" else "b a d")
    step, response = playbook.request(message, version)
    assert response is None
    assert refused(playbook, step)


def test_other_requests_instead_of_a_token_are_an_illegal_state():
    playbook = Playbook()
    playbook.handshake()
    step, response = playbook.request(MetadataRequest(topics=None), 13)
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert (response.brokers, response.topics) == ([], [])
    assert refused(playbook, step)


def test_a_second_handshake_is_an_illegal_state():
    playbook = Playbook()
    playbook.handshake()
    step, response = playbook.handshake("OTHER")
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert refused(playbook, step)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0",
        b"GET / HTTP/1.1\r\n",
        b"\x60\x82\x01\x00 a GSSAPI token of a client older than KIP-43",
        encode_request_header(17, 1, 1, "x") + b"\0\x99short",
        encode_request_header(17, 2, 1, "x") + b"\0\0",
        encode_request_header(36, 2, 1, "x"),
        encode_request_header(18, 3, 1, "x"),
    ],
)
@pytest.mark.parametrize("handshake", [False, True])
def test_frames_that_cannot_be_parsed_are_refused(frame, handshake):
    playbook = Playbook()
    if handshake:
        playbook.handshake()
    assert refused(playbook, playbook.authenticator.receive(frame))


def test_an_unsupported_version_of_sasl_authenticate_gets_no_answer():
    playbook = Playbook()
    playbook.handshake()
    step = playbook.authenticator.receive(encode_request_header(36, 3, 1, "x") + b"\x02x\0")
    assert not step.send
    assert refused(playbook, step)


def test_the_table_refuses_unknown_transitions():
    assert set(TRANSITIONS) == set(SaslState)
    for state in SaslState:
        for to in SaslState:
            if to in TRANSITIONS[state]:
                assert moved(state, to) is to
            else:
                with pytest.raises(IllegalTransitionError):
                    moved(state, to)
    assert not TRANSITIONS[SaslState.FAILED], "who has failed stays out"
    assert {state for state, ways in TRANSITIONS.items() if SaslState.COMPLETE in ways} == {
        SaslState.AUTHENTICATE,
        SaslState.EVALUATING,
    }


def test_the_exchange_is_closed_with_the_channel():
    playbook = Playbook()
    playbook.handshake()
    playbook.token(b"challenge")
    playbook.authenticator.close()
    playbook.authenticator.close()
    assert [server.closed for server in playbook.mechanisms["SCRIPTED"].servers] == [True]


def test_only_a_token_may_be_large_before_authentication():
    assert "a frame of 9000 bytes before authentication" in Playbook().authenticator.receive(bytes(9000)).failed
    playbook = Playbook()
    playbook.handshake()
    assert playbook.token(b"user " + b"x" * 100_000)[0].complete
    playbook = Playbook()
    playbook.handshake()
    step = playbook.authenticator.receive(framed_metadata(100_000))
    assert "METADATA during SASL authentication" in step.failed
    assert step.send == (), "an answer in the shape of a large request costs as much as the request"


def framed_metadata(length):
    return (3).to_bytes(2, "big") + (0).to_bytes(2, "big") + bytes(4) + b"\xff\xff" + bytes(length)
