"""Tests of sessions: a session ends if its credential is changed or removed, and only then."""

import dataclasses
import itertools

import pytest

from klamm.api.sessions import RECHECK_DELAY_MS
from klamm.sasl import DELEGATION_TOKENS, SCRAM_CREDENTIALS, DelegationTokenCache, SaslContext, ScramMechanism
from klamm_sasl.oauthbearer import OAuthBearerMechanism
from klamm_sasl.plain import PlainMechanism
from klamm_sasl.sasl_settings import FileStoreSettings, OAuthBearerSettings
from klamm_sasl.scram import ScramSha256, ScramSha512
from klamm_sasl.stores.broker import BrokerStore
from klamm_sasl.stores.file import FileStore
from klamm_sasl.stores.user_table import InlineStore
from tests.unit.sasl import test_plain, test_scram
from tests.unit.sasl.playbook import Playbook
from tests.unit.sasl.test_oauthbearer import EC, OTHER_RSA, RSA, bearer_message, jwks, signed, unsecured
from tests.unit.sasl.users import DictStore, credential, reconnected

SHA_256, SHA_512 = ScramMechanism
FILE_REFRESH_MS = 1000


class BrokerUsers:
    """The store `broker`, whose rows a test changes."""

    def __init__(self, playbook, _path):
        self.playbook = playbook
        self.store = BrokerStore()
        self.store.open(playbook.listener)

    def put(self, user, mechanism, found):
        row = None if found is None else found.to_row()
        self.playbook.services.shared.table(SCRAM_CREDENTIALS).update({mechanism.row_key(user): row})
        self.playbook.pass_time(RECHECK_DELAY_MS)


class FileUsers:
    """The store `file`, whose lines a test changes."""

    def __init__(self, playbook, path):
        self.playbook, self.path, self.users = playbook, path / "users", {}
        self.path.write_text("# no users\n")
        self.store = FileStore(FileStoreSettings(self.path, FILE_REFRESH_MS))
        self.store.open(playbook.listener)

    def put(self, user, mechanism, found):
        self.users[user, mechanism] = found
        lines = [f"{user}:{one.to_text()}\n" for (user, _), one in self.users.items() if one is not None]
        self.path.write_text("".join(lines))
        self.playbook.pass_time(FILE_REFRESH_MS)
        self.playbook.pass_time(RECHECK_DELAY_MS)


MECHANISMS = {"PLAIN": PlainMechanism, "SCRAM-SHA-256": ScramSha256, "SCRAM-SHA-512": ScramSha512}


@pytest.fixture(params=itertools.product(MECHANISMS, (BrokerUsers, FileUsers)), ids=str)
def users(request, tmp_path):
    """Return a listener with alice and bob, and connections of both."""
    name, kind = request.param
    mechanism = MECHANISMS[name]()
    playbook = Playbook({name: mechanism})
    users = kind(playbook, tmp_path)
    users.store.watch(playbook.sessions.recheck)
    mechanism.open(SaslContext(playbook.listener, [users.store], playbook.sessions))
    users.mechanism = SHA_512 if name == "SCRAM-SHA-512" else SHA_256
    for user in ("alice", "bob"):
        users.put(user, users.mechanism, credential("sesame", users.mechanism))
    users.alice, users.bob = log_in(playbook, "alice"), log_in(playbook, "bob")
    yield users
    users.store.close()


def log_in(playbook, user, password="sesame"):  # noqa: S107
    other = reconnected(playbook)
    (name,) = playbook.mechanisms
    if name == "PLAIN":
        step, _ = other.token(test_plain.plain_message(user, password))
    else:
        step, _ = test_scram.log_in(other, user, password, ScramMechanism.named(name))
    assert step.complete

    return other


def test_a_changed_password_ends_the_sessions_of_the_user(users):
    again = log_in(users.playbook, "alice")
    users.put("alice", users.mechanism, credential("other", users.mechanism, salt=b"x" * 24))
    assert users.alice.ended == again.ended == "the credential has changed"
    assert users.bob.ended is None
    assert log_in(users.playbook, "alice", "other").ended is None


def test_a_removed_user_has_no_sessions(users):
    users.put("alice", users.mechanism, None)
    assert users.alice.ended == "the credential was removed"
    assert users.bob.ended is None


def test_rewriting_unchanged_credentials_ends_no_session(users):
    users.put("alice", users.mechanism, credential("sesame", users.mechanism))
    users.put("carol", users.mechanism, credential("sesame", users.mechanism))
    assert users.alice.ended is None
    assert users.bob.ended is None


def test_a_connection_that_is_closed_is_not_ended(users):
    users.alice.authenticator.close()
    users.put("alice", users.mechanism, None)
    assert users.alice.ended is None


def test_a_change_during_an_exchange_refuses_it(users):
    playbook = reconnected(users.playbook)
    (name,) = playbook.mechanisms

    def change(text=""):
        users.put("alice", users.mechanism, credential("other", users.mechanism, salt=b"x" * 24))
        return text

    if name == "PLAIN":
        # A password that is not remembered is checked on a thread, and the answer waits for the processor.
        users.put("alice", users.mechanism, credential("new", salt=b"y" * 24))
        note, playbook._note_resumed = playbook._note_resumed, lambda: (note(), change())
        step, _ = playbook.token(test_plain.plain_message("alice", "new"))
    else:
        step, _ = test_scram.log_in(playbook, "alice", "sesame", users.mechanism, change=change)
    assert "the credential has changed while the client authenticated" in step.failed
    assert not playbook.authenticator.complete


def test_the_event_names_the_user_and_nothing_secret(users):
    events = []
    users.playbook.services.admin_events.subscribe(events.append)
    users.put("alice", users.mechanism, None)
    assert [(event.action, event.detail) for event in events] == [
        ("sessions_ended", "the credential was removed: connections of User:alice (1)")
    ]


def test_a_user_of_an_earlier_store_hides_the_later_one(tmp_path):
    mechanism = ScramSha256()
    playbook = Playbook({"SCRAM-SHA-256": mechanism})
    first = FileUsers(playbook, tmp_path)
    first.store.watch(playbook.sessions.recheck)
    stores = [first.store, InlineStore({"alice": credential("sesame").to_text()})]
    mechanism.open(SaslContext(playbook.listener, stores, playbook.sessions))
    alice = log_in(playbook, "alice")
    first.put("alice", SHA_256, credential("sesame", salt=b"x" * 24))
    assert alice.ended == "the credential has changed"


def test_a_slow_store_is_not_asked_again():
    mechanism = ScramSha256()
    playbook = Playbook({"SCRAM-SHA-256": mechanism})
    store = DictStore([("alice", credential("sesame"))], blocking=True)
    mechanism.open(SaslContext(playbook.listener, [store], playbook.sessions))
    alice = log_in(playbook, "alice")
    asked = store.asked
    playbook.sessions.recheck()
    playbook.pass_time(RECHECK_DELAY_MS)
    assert (store.asked, alice.ended) == (asked, None)


# ---- limited sessions


def until(playbook, lifetime_ms):
    """Return a token that ends after this time."""
    return b"until %d" % (playbook.clock.wall_ms() + lifetime_ms)


def test_a_session_ends_with_its_token():
    playbook = Playbook()
    playbook.handshake()
    assert playbook.token(until(playbook, 60_000))[0].complete
    playbook.pass_time(59_999)
    assert playbook.ended is None
    playbook.pass_time(1)
    assert playbook.ended == "the session has expired and was not renewed"


def test_a_session_that_must_be_renewed_ends_with_its_next_request():
    playbook = Playbook(max_reauth_ms=60_000)
    playbook.handshake()
    assert playbook.token(b"user alice")[0].complete
    playbook.pass_time(100_000)
    assert playbook.ended is None


def test_a_session_that_is_being_renewed_does_not_end():
    playbook = Playbook()
    playbook.handshake()
    playbook.token(until(playbook, 60_000))
    playbook.pass_time(59_000)
    playbook.handshake()
    playbook.pass_time(5_000)
    assert playbook.ended is None
    assert playbook.token(until(playbook, 60_000))[0].complete
    playbook.pass_time(59_999)
    assert playbook.ended is None
    playbook.pass_time(1)
    assert playbook.ended is not None


# ---- delegation tokens


@pytest.fixture
def owner():
    """Return a connection that used a token, and a function that replaces the token."""
    playbook = test_scram.with_token()
    step, _ = test_scram.log_in(playbook, "token-1", "the hmac", extensions=",tokenauth=true")
    assert step.complete
    playbook.connection.principal = playbook.authenticator.principal
    cache = playbook.services.shared.once(DELEGATION_TOKENS, DelegationTokenCache)

    def change(**fields):
        (token,) = cache.tokens.values()
        cache.tokens = {"token-1": dataclasses.replace(token, **fields)}
        playbook.pass_time(RECHECK_DELAY_MS)

    playbook.change, playbook.cache = change, cache
    return playbook


def test_sessions_of_an_ended_token_end(owner):
    user = reconnected(owner)
    assert test_scram.log_in(user, "token-1", "not the token")[0].complete
    owner.cache.tokens = {}
    owner.pass_time(RECHECK_DELAY_MS)
    assert owner.ended == "the delegation token has expired"
    assert user.ended is None, "the user of that name has nothing to do with it"


def test_a_session_of_a_renewed_token_ends_at_its_own_time(owner):
    owner.change(expiry_timestamp_ms=owner.clock.wall_ms() + 10**6)
    assert owner.ended is None
    owner.pass_time(60_000)
    assert owner.ended == "the session has expired and was not renewed"


def test_sessions_end_with_a_token_whose_end_was_moved_forward(owner):
    expiry_ms = owner.clock.wall_ms() + 5_000
    owner.change(expiry_timestamp_ms=owner.clock.wall_ms() + 1_000)
    owner.change(expiry_timestamp_ms=expiry_ms)
    owner.pass_time(expiry_ms - owner.clock.wall_ms() - 1)
    assert owner.ended is None
    owner.pass_time(1)
    owner.pass_time(RECHECK_DELAY_MS)
    assert owner.ended == "the delegation token has expired"


# ---- bearer tokens


@pytest.fixture
def bearer(tmp_path):
    file = tmp_path / "jwks.json"
    file.write_bytes(jwks(RSA, EC))
    mechanism = OAuthBearerMechanism(OAuthBearerSettings(jwks_file=file, unsecured_development_tokens=True))
    playbook = Playbook({"OAUTHBEARER": mechanism})
    mechanism.open(SaslContext(playbook.listener, (), playbook.sessions))
    playbook.file, playbook.mechanism = file, mechanism
    yield playbook
    mechanism.close()


def bring(playbook, token):
    other = reconnected(playbook)
    assert other.token(bearer_message(token))[0].complete

    return other


def test_a_key_that_is_removed_ends_the_sessions_of_its_tokens(bearer):
    by_rsa, by_ec, by_no_key = bring(bearer, signed()), bring(bearer, signed(EC, "ES256")), bring(bearer, unsecured())
    bearer.file.write_bytes(jwks(OTHER_RSA, EC))
    bearer.mechanism.reload()
    bearer.pass_time(RECHECK_DELAY_MS)
    assert by_rsa.ended == "the key that has signed the token was removed"
    assert by_ec.ended is None
    assert by_no_key.ended is None


def test_a_session_ends_with_its_bearer_token(bearer):
    alice = bring(bearer, signed())
    bearer.pass_time(599_999)
    assert alice.ended is None
    bearer.pass_time(1)
    assert alice.ended is not None
