"""PLAIN: right and wrong passwords, what is remembered, and that slow checks hold nobody up."""

import pytest

from klamm import CredentialStore, ErrorCode, KafkaPrincipal, ScramMechanism
from klamm_sasl.plain import PlainMechanism
from tests.unit.sasl.users import DictStore, Silent, anew, credential, listening

WRONG = "Authentication failed: Invalid username or password"
INVALID = "Authentication failed during authentication due to invalid credentials with SASL mechanism PLAIN"


def open_plain(*entries, stores=(), blocking=False):
    return listening("PLAIN", PlainMechanism(), Silent(), DictStore(entries, blocking=blocking), *stores)


def said(user, password, authzid=""):
    return f"{authzid}\0{user}\0{password}".encode()


class Counting(DictStore):
    def __init__(self, entries):
        super().__init__(entries)
        self.verified = 0

    def scram_credential(self, user, mechanism):
        return super().scram_credential(user, mechanism)


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("authzid", ["", "alice"])
def test_a_right_password(mechanism, blocking, authzid):
    book = open_plain(("alice", credential("sesame", mechanism)), blocking=blocking)
    step, response = book.token(said("alice", "sesame", authzid))
    assert step.complete
    assert (response.error_code, response.auth_bytes) == (0, b"")
    assert book.authenticator.principal == KafkaPrincipal("alice")


@pytest.mark.parametrize(("user", "password"), [("alice", "Sesame"), ("nobody", "sesame"), ("alice", "sesame ")])
def test_wrong_passwords_and_unknown_users_fail_alike(user, password):
    book = open_plain(("alice", credential("sesame")))
    step, response = book.token(said(user, password))
    assert step.failed
    assert (response.error_code, response.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, WRONG)


def test_unknown_users_cost_as_much_as_others(monkeypatch):
    book = open_plain(("alice", credential("sesame", iterations=8192)))
    spent = []
    real = ScramMechanism.salted_password
    monkeypatch.setattr(
        ScramMechanism,
        "salted_password",
        lambda self, password, salt, iterations: (
            spent.append((self, iterations)) or real(self, password, salt, iterations)
        ),
    )
    book.token(said("alice", "wrong"))
    anew(book).token(said("nobody", "wrong"))
    assert spent[0] == spent[1] == (ScramMechanism.SCRAM_SHA_256, 8192)


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
def test_what_is_no_plain_message(token, message):
    step, response = open_plain(("alice", credential("sesame"))).token(token)
    assert step.failed
    assert response.error_message == message


def test_an_authorization_id_of_somebody_else_is_told_only_to_who_knows_the_password():
    book = open_plain(("alice", credential("sesame")))
    assert book.token(said("alice", "wrong", "root"))[1].error_message == WRONG
    step, response = anew(book).token(said("alice", "sesame", "root"))
    assert step.failed
    assert "authorization id that is different from username" in response.error_message


def pending(book, password):
    """Whether a password is checked on another thread."""
    from klamm.wire.headers import encode_request_header
    from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest

    frame = encode_request_header(36, 2, 1, "x") + SaslAuthenticateRequest(said("alice", password)).encode(2)
    step = book.authenticator.receive(frame)
    done = book.settle(step)
    assert done.complete == (password == "sesame")
    return step.pending is not None


def test_a_password_that_was_right_is_remembered_and_a_wrong_one_is_not():
    book = open_plain(("alice", credential("sesame")))
    assert pending(book, "sesame")
    assert not pending(anew(book), "sesame")
    assert pending(anew(book), "wrong")
    assert pending(anew(book), "wrong")
    assert not pending(anew(book), "sesame")


def test_a_changed_password_is_not_remembered():
    book = open_plain(("alice", credential("sesame")))
    pending(book, "sesame")
    (mechanism,) = book.mechanisms.values()
    store = mechanism.credentials._stores[1]
    store.table = DictStore([("alice", credential("changed"))]).table
    step, _ = anew(book).token(said("alice", "sesame"))
    assert step.failed
    assert anew(book).token(said("alice", "changed"))[0].complete


class Oracle(CredentialStore):
    """Checks passwords itself."""

    blocking = True

    def scram_credential(self, user, mechanism):
        return None

    def verify_password(self, user, password):
        if user == "broken":
            raise OSError("the directory does not answer")
        return {"carol": password == "sesame"}.get(user)


@pytest.mark.parametrize(
    ("user", "password", "enters"),
    [("carol", "sesame", True), ("carol", "no", False), ("alice", "sesame", True), ("dave", "sesame", False)],
)
def test_a_store_may_check_passwords_itself(user, password, enters):
    book = open_plain(("alice", credential("sesame")), stores=(Oracle(),))
    assert book.token(said(user, password))[0].complete == enters


def test_a_store_that_fails_lets_nobody_in(caplog):
    step, response = open_plain(stores=(Oracle(),)).token(said("broken", "sesame"))
    assert step.failed
    assert response.error_message == "Authentication failed: credentials for user could not be verified"
    assert "the directory does not answer" in caplog.text
    assert "sesame" not in caplog.text
