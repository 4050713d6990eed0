"""Tests of the authenticator with any bytes: it does not crash or hang, and only a right token authenticates."""

from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.wire.headers import encode_request_header
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from klamm.wire.messages.sasl_handshake import SaslHandshakeRequest
from klamm_sasl.states import SaslState
from tests.unit.sasl.playbook import ALICE, Playbook


def framed(message, version):
    return encode_request_header(message.API_KEY, version, 1, "fuzz") + message.encode(version)


TOKENS = st.sampled_from(
    [
        b"challenge",
        b"later challenge",
        b"no",
        b"later no",
        b"tell",
        b"crash",
        b"later crash",
        b"user alice",
        b"user bob",
    ]
)
FRAMES = st.one_of(
    st.builds(lambda version: framed(ApiVersionsRequest("fuzz", "1"), version), st.integers(0, 4)),
    st.builds(
        lambda mechanism, version: framed(SaslHandshakeRequest(mechanism), version),
        st.sampled_from(["SCRIPTED", "OTHER", "NONSENSE", ""]),
        st.integers(0, 1),
    ),
    st.builds(lambda token, version: framed(SaslAuthenticateRequest(token), version), TOKENS, st.integers(0, 2)),
    TOKENS,
    st.just(framed(MetadataRequest(topics=None), 12)),
    st.builds(
        lambda key, version, rest: encode_request_header(key, version, 1, "fuzz") + rest,
        st.integers(-5, 100),
        st.integers(-1, 20),
        st.binary(max_size=40),
    ),
    st.binary(max_size=60),
)
"""Frames among which are right tokens. Earlier frames decide if they authenticate."""


def is_success(playbook, frame):
    """Return True if this frame is a right token in this state."""
    if playbook.state is not SaslState.AUTHENTICATE:
        return False
    raw = {b"user alice", b"user bob"}
    return frame in raw or frame in {framed(SaslAuthenticateRequest(token), v) for token in raw for v in range(3)}


@settings(max_examples=400)
@given(st.lists(FRAMES, max_size=12), st.sampled_from([0, 3_600_000]))
def test_only_a_right_token_authenticates(frames, max_reauth_ms):
    playbook = Playbook(max_reauth_ms=max_reauth_ms)
    principal = None
    for frame in frames:
        was_complete = playbook.authenticator.complete
        api_key = int.from_bytes(frame[:2], "big", signed=True)
        if was_complete and not playbook.authenticator.reauthenticates(api_key):
            playbook.clock.advance_ms(700)
            continue
        could_succeed = is_success(playbook, frame)
        step = playbook.settle(playbook.authenticator.receive(frame))
        assert step.pending is None
        assert step.complete == playbook.authenticator.complete
        assert (step.failed is not None) == (playbook.state is SaslState.FAILED)
        if step.complete:
            assert could_succeed
            assert principal in (None, playbook.authenticator.principal), "re-authentication keeps the principal"
            principal = playbook.authenticator.principal
        if step.failed is not None:
            assert not playbook.authenticator.complete
            assert len(step.send) <= 1
            break
    assert (principal is None) == (playbook.authenticator.principal not in (ALICE, type(ALICE)("bob")))


@settings(max_examples=300)
@given(st.binary(max_size=200), st.integers(0, 1))
def test_any_token_is_answered_or_refused(token, version):
    playbook = Playbook()
    playbook.handshake(version=version)
    step = playbook.raw(token if version == 0 else framed(SaslAuthenticateRequest(token), 2))
    assert step.failed or step.send
    word, _, argument = token.decode(errors="replace").partition(" ")
    assert playbook.authenticator.complete == (word == "user" or (word == "until" and is_number(argument)))


def is_number(text):
    try:
        int(text)
    except ValueError:
        return False
    return True
