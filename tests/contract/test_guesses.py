"""Tests of a client that tries wrong passwords one after the other: this client waits, and other clients do not."""

import threading

import pytest

from klamm import ErrorCode
from klamm.sasl import ScramMechanism
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from klamm_sasl.failed_logins import MAX_FAILURES
from tests.contract.test_sasl import is_in
from tests.sasl_client import handshake, log_in, plain, users_setting
from tests.waiting import wait_until

SASL = "listeners.default.sasl"


class Lane:
    """The thread that checks the passwords of suspects. A test controls it: each check waits until `release` is set."""

    def __init__(self, monkeypatch):
        self.busy, self.release = threading.Event(), threading.Event()
        self.checked = []
        real = ScramMechanism.salted_password

        def salted_password(mechanism, password, salt, iterations):
            if threading.current_thread().name.endswith("-suspects-0"):
                self.checked.append(password)
                self.busy.set()
                assert self.release.wait(30)
            return real(mechanism, password, salt, iterations)

        monkeypatch.setattr(ScramMechanism, "salted_password", salted_password)


@pytest.fixture
def lane(monkeypatch):
    made = Lane(monkeypatch)
    yield made
    made.release.set()


@pytest.fixture
def serve(start):
    def one(*settings):
        return start("authenticator=sasl", f'{SASL}.mechanisms=["PLAIN"]', f"{SASL}.suspect_check_percent=50",
                     "listeners.default." + users_setting(alice="sesame", bob="opens"),
                     "connection_failed_authentication_delay_ms=20", *settings)  # fmt: skip

    return one


def guess(client, password, user="alice"):
    """Send a password and do not wait for the response. Return the correlation id of the response."""
    assert handshake(client, "PLAIN").error_code == 0
    return client.send(SaslAuthenticateRequest(plain(user, password)), 2)


def is_refused(client, correlation_id):
    response = client.receive(36, 2, correlation_id)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert response.error_message == "Authentication failed: Invalid username or password"
    return client.at_end()


def waiting(server):
    """Return how many passwords of suspects wait for their check."""
    name = "klamm:type=sasl,name=waiting-suspect-authentications"
    (family,) = server.server.services.metrics.collect(lambda one: one == name)
    return family.samples[0].value


def test_many_guesses_are_refused_and_delay_no_other_client(serve, connect, lane, caplog):
    server = serve()
    known = connect(server)
    assert log_in(known, "PLAIN", "bob", "opens").error_code == 0
    crowd = [connect(server) for _ in range(3 * MAX_FAILURES)]
    asked = [guess(client, f"guess {number}") for number, client in enumerate(crowd)]
    assert lane.busy.wait(60)
    other = connect(server, source_host="127.0.0.2")
    assert log_in(other, "PLAIN", "alice", "sesame").error_code == 0, "another address does not wait"
    assert is_in(server, other, "alice")
    again = connect(server)
    assert log_in(again, "PLAIN", "bob", "opens").error_code == 0, "nor does a password that is remembered"
    wrong_again = connect(server, source_host="127.0.0.2")
    assert log_in(wrong_again, "PLAIN", "alice", "wrong").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert len(lane.checked) == 1
    lane.release.set()
    for client, correlation_id in zip(crowd, asked, strict=True):
        assert is_refused(client, correlation_id)
    assert len(lane.checked) == 2 * MAX_FAILURES
    assert is_in(server, known, "bob")
    assert caplog.text.count("suspect_check_percent") == 1
    assert "guess" not in caplog.text


def test_a_right_password_of_a_suspect_waits_for_at_most_one_guess_for_each_other_user(serve, connect, lane):
    server = serve()
    crowd = [connect(server) for _ in range(3 * MAX_FAILURES)]
    asked = [guess(client, f"guess {number}") for number, client in enumerate(crowd)]
    assert lane.busy.wait(60)
    neighbour = connect(server)
    asked_neighbour = guess(neighbour, "opens", "bob")
    wait_until(lambda: waiting(server) == 2 * MAX_FAILURES, "not all wait, of whom one is checked")
    lane.release.set()
    assert neighbour.receive(36, 2, asked_neighbour).error_code == 0
    assert is_in(server, neighbour, "bob")
    for client, correlation_id in zip(crowd, asked, strict=True):
        assert is_refused(client, correlation_id)
    assert lane.checked.index(b"opens") <= 2


@pytest.mark.parametrize("channel", ["epoll"], indirect=True)
def test_a_client_that_waits_too_long_is_closed_without_a_check(serve, connect, lane):
    # With 99 percent the thread makes almost no pause after a check, however long the check was held.
    server = serve("connection_setup_timeout_ms=10000", f"{SASL}.suspect_check_percent=99")
    for number in range(MAX_FAILURES):
        client = connect(server)
        assert is_refused(client, guess(client, f"guess {number}"))
    clients = [connect(server) for _ in range(3)]
    for number, client in enumerate(clients):
        guess(client, f"late {number}")
        assert lane.busy.wait(60)
    server.advance_ms(10_000)
    assert all(client.at_end() for client in clients)
    lane.release.set()
    last = connect(server)
    assert is_refused(last, guess(last, "last"))
    assert lane.checked == [b"late 0", b"last"]
