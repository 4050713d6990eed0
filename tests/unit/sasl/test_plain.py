"""Tests of PLAIN: right and wrong passwords, remembered results, and slow checks."""

import pytest

from klamm import ErrorCode, KafkaPrincipal
from klamm.sasl import CredentialStore, ScramMechanism
from klamm_sasl.plain import PlainMechanism
from tests.unit.sasl.users import DictStore, Silent, credential, listening, reconnected

WRONG = "Authentication failed: Invalid username or password"
INVALID = "Authentication failed during authentication due to invalid credentials with SASL mechanism PLAIN"


def open_plain(*entries, stores=(), blocking=False):
    return listening("PLAIN", PlainMechanism(), Silent(), DictStore(entries, blocking=blocking), *stores)


def plain_message(user, password, authzid=""):
    return f"{authzid}\0{user}\0{password}".encode()


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("authzid", ["", "alice"])
def test_right_password_is_accepted(mechanism, blocking, authzid):
    playbook = open_plain(("alice", credential("sesame", mechanism)), blocking=blocking)
    step, response = playbook.token(plain_message("alice", "sesame", authzid))
    assert step.complete
    assert (response.error_code, response.auth_bytes) == (0, b"")
    assert playbook.authenticator.principal == KafkaPrincipal("alice")


@pytest.mark.parametrize(("user", "password"), [("alice", "Sesame"), ("nobody", "sesame"), ("alice", "sesame ")])
def test_wrong_passwords_and_unknown_users_fail_alike(user, password):
    playbook = open_plain(("alice", credential("sesame")))
    step, response = playbook.token(plain_message(user, password))
    assert step.failed
    assert (response.error_code, response.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, WRONG)


@pytest.fixture
def spent(monkeypatch):
    """Return the parameters with which PBKDF2 was called. It returns nothing useful."""
    calls = []
    monkeypatch.setattr(
        ScramMechanism,
        "salted_password",
        lambda self, password, salt, iterations: calls.append((self, iterations)) or bytes(32),
    )
    return calls


def test_a_check_of_an_unknown_user_takes_the_same_time(spent):
    alice = credential("sesame", iterations=8192)
    del spent[:]
    playbook = open_plain(("alice", alice))
    playbook.token(plain_message("alice", "wrong"))
    reconnected(playbook).token(plain_message("nobody", "wrong"))
    assert spent == [(ScramMechanism.SCRAM_SHA_256, 8192)] * 2


def test_a_check_of_an_unknown_user_takes_average_time_if_users_differ(spent):
    """An unknown user always takes the same time. On average this is the time of the users of all stores."""
    made = {one: credential("sesame", one, iterations=4096 + index) for index, one in enumerate(ScramMechanism)}
    sha_256, sha_512 = ScramMechanism
    first = DictStore([(f"a{n}", made[sha_256]) for n in range(5)] + [(f"b{n}", made[sha_512]) for n in range(5)])
    # The first store decides, and SHA-256 for a user with both mechanisms.
    shadowed = [(f"a{n}", made[sha_512]) for n in range(5)]
    both = [(f"c{n}", one) for n in range(30) for one in made.values()]
    playbook = open_plain(stores=(first, DictStore(shadowed + both)))
    del spent[:]
    names = [f"unknown-{n}" for n in range(200)]
    for password in ("wrong", "wrong again"):
        for name in names:
            reconnected(playbook).token(plain_message(name, password))
    assert spent[:200] == spent[200:]
    assert set(spent) == {(sha_256, 4096), (sha_512, 4097)}
    assert 5 <= [one for one, _ in spent[:200]].count(sha_512) <= 60, "5 of 40 users have SHA-512 alone"


def test_a_user_that_a_store_refuses_takes_as_long_as_an_unknown_one(spent):
    alice = credential("sesame", iterations=8192)
    playbook = open_plain(("alice", alice), stores=(Oracle(),))
    del spent[:]
    for user in ("carol", "nobody"):
        assert reconnected(playbook).token(plain_message(user, "wrong"))[0].failed
    assert spent == [(ScramMechanism.SCRAM_SHA_256, 8192)] * 2


def test_the_hmac_of_a_password_is_computed_also_for_unknown_users(monkeypatch):
    playbook = open_plain(("alice", credential("sesame")))
    (mechanism,) = playbook.mechanisms.values()
    marked = []
    real = mechanism._mark
    monkeypatch.setattr(mechanism, "_mark", lambda password, it: marked.append(len(it.salt)) or real(password, it))
    for user in ("alice", "nobody"):
        del marked[:]
        assert mechanism.recall(user, "wrong") is None
        assert marked == [24]


TOKENS = "Invalid SASL/PLAIN response: expected 3 tokens, got "


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"", TOKENS + "1"),
        (b"alice sesame", TOKENS + "1"),
        (b"\0alice", TOKENS + "2"),
        (b"\0alice\0sesame\0more", TOKENS + "4"),
        (b"\0\0sesame", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0alice\0\xff", INVALID),
    ],
)
def test_bytes_that_are_not_a_plain_message_are_refused(token, message):
    step, response = open_plain(("alice", credential("sesame"))).token(token)
    assert step.failed
    assert response.error_message == message


def test_a_wrong_authorization_id_is_reported_only_with_the_right_password():
    playbook = open_plain(("alice", credential("sesame")))
    assert playbook.token(plain_message("alice", "wrong", "root"))[1].error_message == WRONG
    step, response = reconnected(playbook).token(plain_message("alice", "sesame", "root"))
    assert step.failed
    assert "authorization id that is different from username" in response.error_message


def pending(playbook, password):
    """Return True if a password is checked on another thread."""
    from klamm.wire.headers import encode_request_header
    from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest

    frame = encode_request_header(36, 2, 1, "x") + SaslAuthenticateRequest(plain_message("alice", password)).encode(2)
    step = playbook.authenticator.receive(frame)
    done = playbook.settle(step)
    assert done.complete == (password == "sesame")
    return step.pending is not None


@pytest.mark.parametrize(("stores", "blocking"), [((), False), ((), True), (("oracle",), False)])
def test_only_checks_that_take_processor_time_are_paced(stores, blocking):
    playbook = open_plain(
        ("alice", credential("sesame")), stores=[Oracle() for _ in stores], blocking=blocking
    )  # fmt: skip
    playbook.token(plain_message("alice", "wrong"))
    assert playbook.passwords_of == (["alice"] if not stores and not blocking else [None])


def test_results_of_password_checks_are_remembered():
    playbook = open_plain(("alice", credential("sesame")))
    for password in ("sesame", "wrong", "wrong again"):
        assert pending(reconnected(playbook), password)
        assert not pending(reconnected(playbook), password)


def test_wrong_passwords_do_not_displace_remembered_right_ones(monkeypatch):
    monkeypatch.setattr("klamm_sasl.plain.REMEMBERED", 2)
    playbook = open_plain(("alice", credential("sesame")))
    for password in ("sesame", "1", "2", "3"):
        assert pending(reconnected(playbook), password)
    assert not pending(reconnected(playbook), "sesame")
    assert not pending(reconnected(playbook), "3")
    assert pending(reconnected(playbook), "1")


@pytest.mark.parametrize(("user", "password"), [("alice", "changed"), ("bob", "sesame")])
def test_a_formerly_wrong_password_is_accepted_once_it_is_the_new_one(user, password):
    playbook = open_plain(("alice", credential("sesame")))
    (mechanism,) = playbook.mechanisms.values()
    assert reconnected(playbook).token(plain_message(user, password))[0].failed
    mechanism.credentials._stores[1].table = DictStore([(user, credential(password))]).table
    assert reconnected(playbook).token(plain_message(user, password))[0].complete


def test_a_changed_password_is_not_remembered():
    playbook = open_plain(("alice", credential("sesame")))
    pending(playbook, "sesame")
    (mechanism,) = playbook.mechanisms.values()
    store = mechanism.credentials._stores[1]
    store.table = DictStore([("alice", credential("changed"))]).table
    step, _ = reconnected(playbook).token(plain_message("alice", "sesame"))
    assert step.failed
    assert reconnected(playbook).token(plain_message("alice", "changed"))[0].complete


@pytest.mark.parametrize("oracle_first", [True, False])
def test_the_first_store_that_knows_a_user_decides(oracle_first):
    dictionary, oracle = DictStore([("carol", credential("other"))]), Oracle()
    stores = (oracle, dictionary) if oracle_first else (dictionary, oracle)
    playbook = listening("PLAIN", PlainMechanism(), *stores)
    for _ in range(2):
        assert reconnected(playbook).token(plain_message("carol", "sesame"))[0].complete == oracle_first
        assert reconnected(playbook).token(plain_message("carol", "other"))[0].complete != oracle_first


def test_a_remembered_password_does_not_override_an_earlier_store():
    oracle = Oracle()
    playbook = listening("PLAIN", PlainMechanism(), oracle, DictStore([("dave", credential("sesame"))]))
    assert playbook.token(plain_message("dave", "sesame"))[0].complete
    oracle.known["dave"] = "new"
    assert reconnected(playbook).token(plain_message("dave", "sesame"))[0].failed
    assert reconnected(playbook).token(plain_message("dave", "new"))[0].complete


def test_an_earlier_store_decides_with_any_mechanism():
    first = DictStore([("carol", credential("first", ScramMechanism.SCRAM_SHA_512))])
    second = DictStore([("carol", credential("second", ScramMechanism.SCRAM_SHA_256))])
    playbook = listening("PLAIN", PlainMechanism(), first, second)
    assert playbook.token(plain_message("carol", "second"))[0].failed
    assert reconnected(playbook).token(plain_message("carol", "first"))[0].complete


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (plain_message("alice", "wrong"), "user 'alice': wrong password, or no such user"),
        (plain_message("eve\nlistener=x", "wrong"), "user 'eve\\nlistener=x': wrong password, or no such user"),
        (plain_message("e" * 500, "wrong"), f"user '{'e' * 256}… (500 characters)': wrong password, or no such user"),
        (plain_message("alice", "sesame", "root"), "user 'alice' requests the authorization id 'root'"),
    ],
)
def test_the_log_names_the_user_and_the_client_gets_no_details(token, reason):
    step, response = open_plain(("alice", credential("sesame"))).token(token)
    assert step.failed == f"mechanism=PLAIN {reason}"
    assert response.error_message.startswith("Authentication failed: ")
    assert reason not in response.error_message


class Oracle(CredentialStore):
    """A store that checks passwords itself."""

    blocking = True

    def __init__(self):
        super().__init__()
        self.known = {"carol": "sesame"}

    def scram_credential(self, user, mechanism):
        return None

    def verify_password(self, user, password):
        if user == "broken":
            raise OSError("the directory does not answer")
        return password == self.known[user] if user in self.known else None


@pytest.mark.parametrize(
    ("user", "password", "enters"),
    [("carol", "sesame", True), ("carol", "no", False), ("alice", "sesame", True), ("dave", "sesame", False)],
)
def test_a_store_may_check_passwords_itself(user, password, enters):
    playbook = open_plain(("alice", credential("sesame")), stores=(Oracle(),))
    assert playbook.token(plain_message(user, password))[0].complete == enters


def test_a_store_that_raises_authenticates_no_client(caplog):
    step, response = open_plain(stores=(Oracle(),)).token(plain_message("broken", "sesame"))
    assert step.failed
    assert response.error_message == "Authentication failed: credentials for user could not be verified"
    assert "the directory does not answer" in caplog.text
    assert "sesame" not in caplog.text
