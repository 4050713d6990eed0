"""Tests of SCRAM: with another implementation, wrong clients, and unknown users."""

import base64
import itertools
import random

import pytest
import scramp
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm import ErrorCode, KafkaPrincipal
from klamm.sasl import DELEGATION_TOKENS, DelegationToken, DelegationTokenCache, ScramMechanism
from klamm_sasl.scram import ScramSha256, ScramSha512
from tests.unit.sasl.users import SALT, DictStore, Silent, credential, listening, reconnected

MECHANISMS = {ScramMechanism.SCRAM_SHA_256: ScramSha256, ScramMechanism.SCRAM_SHA_512: ScramSha512}
PLENTY = credential("x")
INVALID = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"


def open_scram(*entries, mechanism=ScramMechanism.SCRAM_SHA_256, blocking=False):
    return listening(mechanism.mechanism_name, MECHANISMS[mechanism](), Silent(), DictStore(entries, blocking=blocking))


def log_in(playbook, user, password, mechanism=ScramMechanism.SCRAM_SHA_256, extensions="", change=lambda text: text):
    """Log in and return the last step and response. On success, check the server's signature."""
    client = scramp.ScramClient([mechanism.mechanism_name], user, password)
    first = client.get_client_first() + extensions
    step, response = playbook.token(first.encode())
    if step.failed:
        return step, response
    # The client signs the text that it has sent.
    client.client_first_bare = first.removeprefix("n,,")
    client.set_server_first(response.auth_bytes.decode())
    step, response = playbook.token(change(client.get_client_final()).encode())
    if not step.failed:
        client.set_server_final(response.auth_bytes.decode())
    return step, response


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("iterations", [4096, 8192])
def test_right_password_is_accepted(mechanism, iterations, blocking):
    playbook = open_scram(
        ("alice", credential("sesame", mechanism, iterations=iterations)), mechanism=mechanism, blocking=blocking
    )
    step, _ = log_in(playbook, "alice", "sesame", mechanism)
    assert step.complete
    assert playbook.authenticator.principal == KafkaPrincipal("alice")
    assert not playbook.authenticator.principal.token_authenticated


@pytest.mark.parametrize("user", ["a,b=c", "=2C", "jürgen", "a b"])
def test_names_are_unescaped(user):
    playbook = open_scram((user, credential("sesame")))
    assert log_in(playbook, user, "sesame")[0].complete
    assert playbook.authenticator.principal.name == user


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "sesame")])
def test_wrong_passwords_and_unknown_users_fail_alike(user, password):
    playbook = open_scram(("alice", credential("sesame")))
    step, response = log_in(playbook, user, password)
    assert step.failed
    assert (response.error_code, response.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, INVALID)
    assert response.auth_bytes == b""


def first_answer(playbook, user, extensions=""):
    _, response = playbook.token(f"n,,n={user},r=nonce{extensions}".encode())
    words = dict(word.split("=", 1) for word in response.auth_bytes.decode().split(","))
    return base64.b64decode(words["s"]), int(words["i"])


@pytest.mark.parametrize("extensions", ["", ",tokenauth=true"])
def test_the_answer_for_an_unknown_user_looks_like_others(extensions):
    entries = [
        ("alice", credential("x", salt=b"0q8d9wkz3v5p2m7r1t6y4u8i3o", iterations=8192)),
        ("bob", credential("y", salt=bytes(range(20)), iterations=4096)),
    ]
    playbook = open_scram(*entries)
    shapes = set()
    for number in range(40):
        salt, iterations = first_answer(reconnected(playbook), f"nobody{number}", extensions)
        assert (salt, iterations) == first_answer(reconnected(playbook), f"nobody{number}", extensions), (
            "the same each time"
        )
        shapes.add((len(salt), salt.isascii() and salt.isalnum(), iterations))
    # Delegation tokens have no password that a user chooses, so all have the same form.
    assert shapes == ({(24, False, 4096)} if extensions else {(26, True, 8192), (20, False, 4096)})


def test_no_response_discloses_which_names_are_users_or_tokens():
    """A client can see the salts of a name with both mechanisms, as a user and as a token, and compare them."""
    names = [f"{kind}-{number}" for kind in ("user", "token", "both", "neither") for number in range(5)]
    users = [
        (name, credential("x", mechanism, salt=random.randbytes(24)))
        for name in names
        for mechanism in MECHANISMS
        if name.startswith(("user", "both")) and not (name.endswith("1") and mechanism is ScramMechanism.SCRAM_SHA_256)
    ]
    books = {mechanism: open_scram(*users, mechanism=mechanism) for mechanism in MECHANISMS}
    first, second = books.values()
    second.services.shared.table("sasl").update(dict(first.services.shared.table("sasl").rows))
    for playbook in books.values():
        tokens = {name: token_of(playbook, name) for name in names if name.startswith(("token", "both"))}
        playbook.services.shared.once(DELEGATION_TOKENS, DelegationTokenCache).tokens = tokens
    seen = {}
    for name in names:
        salts = [
            first_answer(reconnected(playbook), name, extensions)
            for playbook in books.values()
            for extensions in ("", ",tokenauth=true", ",tokenauth=false")
        ]
        assert salts[0] == salts[2] != salts[1]
        assert salts[3] == salts[5] != salts[4]
        seen[name] = tuple((salts.index(salt), len(salt[0]), salt[1]) for salt in salts)
    assert len(set(seen.values())) == 1, seen


def test_the_answer_for_an_unknown_user_stays_when_users_change():
    def forms(count, rare=1):
        store = DictStore(
            [(f"a{number}", credential("x", iterations=8192, salt=bytes(20))) for number in range(rare)]
            + [(f"b{number}", PLENTY) for number in range(count)]
        )
        playbook = listening("SCRAM-SHA-256", ScramSha256(), store)
        playbook.services.shared.table("sasl").update({"unknown_users_secret": {"hex": "00" * 32}})
        return [first_answer(reconnected(playbook), f"nobody{number}") for number in range(100)]

    assert forms(20, rare=0) == forms(21, rare=0) == forms(40, rare=0)
    changed = sum(one != other for one, other in zip(forms(20), forms(21), strict=True))
    assert changed <= 3


def test_the_secret_for_answers_to_unknown_users_survives_a_restart():
    playbook = open_scram()
    salt = first_answer(playbook, "nobody")
    other = open_scram()
    assert first_answer(other, "nobody") != salt, "another server, another secret"
    row = playbook.services.shared.table("sasl").rows
    other.services.shared.table("sasl").update(dict(row))
    assert first_answer(reconnected(other), "nobody") == salt


def test_nonces_are_not_used_twice():
    playbook = open_scram(("alice", credential("x")))
    answers = {reconnected(playbook).token(b"n,,n=alice,r=same")[1].auth_bytes for _ in range(20)}
    assert len(answers) == 20


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff",
        b"n,,n=alice",
        b"n,,r=x,n=alice",
        b"y,,n=alice,r=x",
        b"p=tls-unique,,n=alice,r=x",
        b"n,,m=must,n=alice,r=x",
        b"n,,n=,r=x",
        b"n,,n=al=ice,r=x",
        b"n,,n=alice,r=x\0",
        b"n,,n=alice,r=",
        b"n,,n=alice,r=a b",
        b"n,,n=alice,r=x,novalue",
    ],
)
def test_an_invalid_first_message_is_refused(message):
    step, response = open_scram(("alice", credential("sesame"))).token(message)
    assert step.failed
    assert response.error_message == INVALID


@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_authorization_id_of_another_user_is_refused(user):
    step, response = open_scram(("alice", credential("sesame"))).token(f"n,a=root,n={user},r=x".encode())
    assert step.failed
    assert "authorization id that is different from username" in response.error_message


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("c=biws", "c=eSws"),
        lambda text: text.replace(",r=", ",r=other"),
        lambda text: text[:-4] + "AAA=",
        lambda text: text.partition(",p=")[0],
        lambda text: text.partition(",p=")[0] + ",p=",
        lambda text: text.partition(",p=")[0] + ",p=AAAA",
        lambda text: text + "=",
        lambda text: "",
        lambda text: text + ",x=y",
        lambda text: text.replace(",p=", ",x=y,p="),
    ],
)
def test_a_changed_final_message_is_refused(change):
    playbook = open_scram(("alice", credential("sesame")))
    step, response = log_in(playbook, "alice", "sesame", change=change)
    assert step.failed
    assert response.error_message == INVALID


def test_a_client_that_repeats_its_nonce_is_refused_and_the_log_has_advice():
    playbook = open_scram(("alice", credential("sesame")))
    step, response = log_in(playbook, "alice", "sesame", change=repeat_nonce)
    assert response.error_message == INVALID
    assert "librdkafka before 2.6.1" in step.failed
    assert "update the client" in step.failed
    other, _ = log_in(reconnected(playbook), "alice", "sesame", change=lambda text: text.replace(",r=", ",r=x"))
    assert "librdkafka" not in other.failed


def repeat_nonce(final):
    """Return the message that librdkafka before 2.6.1 sends. Its proof is right, but the nonce is checked first."""
    binding, nonce, proof = final.split(",")
    return f"{binding},r={nonce[2:66]}{nonce[2:]},{proof}"


def test_a_final_message_cannot_be_replayed():
    playbook = open_scram(("alice", credential("sesame")))
    sent = []
    assert log_in(playbook, "alice", "sesame", change=lambda text: sent.append(text) or text)[0].complete
    other = reconnected(playbook)
    other.token(f"n,,n=alice,r={sent[0].split(',')[1][2:26]}".encode())
    assert other.token(sent[0].encode())[0].failed


def test_a_message_after_the_end_is_refused():
    playbook = open_scram(("alice", credential("sesame")))
    assert log_in(playbook, "alice", "sesame")[0].complete
    assert not playbook.authenticator.reauthenticates(36)


@settings(max_examples=200)
@given(
    st.lists(
        st.one_of(st.binary(max_size=60), st.just(b"n,,n=alice,r=abc"), st.text(max_size=40).map(str.encode)),
        max_size=4,
    )
)
def test_no_bytes_authenticate_without_a_credential(messages):
    playbook = open_scram(("alice", credential("sesame")))
    for message in messages:
        step, _ = playbook.token(message)
        assert not step.complete
        if step.failed:
            break


# ---- delegation tokens


def token_of(playbook, token_id, expires_in_ms=60_000):
    now_ms = playbook.clock.wall_ms()
    owner = KafkaPrincipal("owner")
    return DelegationToken(
        token_id, owner, owner, (), now_ms, now_ms + expires_in_ms, now_ms + 10**9,
        {each: credential("the hmac", each, salt=random.randbytes(24)) for each in ScramMechanism},
    )  # fmt: skip


def with_token(expires_in_ms=60_000, mechanism=ScramMechanism.SCRAM_SHA_256):
    playbook = open_scram(("token-1", credential("not the token")), mechanism=mechanism)
    token = token_of(playbook, "token-1", expires_in_ms)
    playbook.services.shared.once(DELEGATION_TOKENS, DelegationTokenCache).tokens = {"token-1": token}
    return playbook


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_delegation_token_gives_its_owners_name_until_it_expires(mechanism):
    playbook = with_token(mechanism=mechanism)
    step, response = log_in(playbook, "token-1", "the hmac", mechanism, ",tokenauth=true")
    assert step.complete
    assert playbook.authenticator.principal == KafkaPrincipal("owner")
    assert playbook.authenticator.principal.token_authenticated
    assert response.session_lifetime_ms == 60_000
    assert playbook.authenticator.session_expires_ns == playbook.clock.monotonic_ns() + 60_000 * 1_000_000


@pytest.mark.parametrize(
    ("user", "password", "extensions", "expires_in_ms"),
    [
        ("token-1", "the hmac", "", 60_000),
        ("token-1", "not the token", ",tokenauth=true", 60_000),
        ("token-2", "the hmac", ",tokenauth=true", 60_000),
        ("token-1", "the hmac", ",tokenauth=true", 0),
        ("token-1", "the hmac", ",tokenauth=false", 60_000),
    ],
)
def test_invalid_delegation_tokens_are_refused(user, password, extensions, expires_in_ms):
    step, response = log_in(with_token(expires_in_ms), user, password, extensions=extensions)
    assert step.failed
    assert response.error_message == INVALID


def test_a_user_may_have_the_name_of_a_token():
    step, _ = log_in(with_token(), "token-1", "not the token")
    assert step.complete


def test_salts_of_the_two_mechanisms_differ():
    salts = [first_answer(open_scram(mechanism=mechanism), "nobody")[0] for mechanism in itertools.chain(MECHANISMS)]
    assert salts[0] != salts[1]
    assert {len(salt) for salt in salts} == {len(SALT)}
