"""Tests of the threads that check passwords: suspects have their own thread, and closed channels are dropped."""

import threading

import pytest

from klamm import Address, ListenerContext, ServerServices
from klamm.testing import ManualClock
from klamm.wire.headers import encode_request_header
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from klamm_sasl.credential_checks import CredentialChecks
from klamm_sasl.failed_logins import MAX_FAILURES
from tests.unit.sasl.playbook import Playbook

GUESSER, HONEST = "192.0.2.1", "192.0.2.2"


class Threads:
    """`CredentialChecks` with one worker thread. It records on which of its two threads each check ran."""

    def __init__(self, percent=50):
        self.services = ServerServices(ManualClock())
        here = Address("127.0.0.1", 1)
        self.checks = CredentialChecks(ListenerContext("test", here, here, "SASL_PLAINTEXT", self.services), 1, percent)
        self.ran = []

    def submit(self, address, proved, user="alice", *, cost_ms=1, wait_for=None, started=None):
        """Submit a check that ends with `proved`.

        Return a function that drops the check, and an event that is set at its end.
        """
        ended = threading.Event()

        def check():
            if started is not None:
                started.set()
            if wait_for is not None:
                assert wait_for.wait(60)
            self.services.clock.advance_ms(cost_ms)
            self.ran.append(
                (address, threading.current_thread().name.removeprefix("klamm-sasl-test-").removesuffix("-0"))
            )
            ended.set()
            return proved

        return self.checks.submit(check, address, user), ended

    def check(self, address, proved, user="alice", **how):
        """Run a check to its end, including the record of its result. Return its thread."""
        assert self.submit(address, proved, user, **how)[1].wait(60)
        self.settle()
        return self.ran[-1][1]

    def settle(self):
        """Wait until both threads have finished their work."""
        for address in (GUESSER, HONEST):
            ended = threading.Event()
            self.checks._workers.submit(ended.set, address)
            assert ended.wait(60)
        if self.checks._paced_worker._workers._threads:
            ended = threading.Event()
            self.checks._paced_worker.submit(ended.set, GUESSER, "alice")
            assert ended.wait(60)

    def metric(self, name):
        families = {family.name: family for family in self.services.metrics.collect()}
        (sample,) = families[f"klamm:type=sasl,name={name}"].samples
        return sample.value


@pytest.fixture
def threads(request):
    made = Threads(getattr(request, "param", 50))
    yield made
    made.checks.close()


def make_suspect(threads, address=GUESSER):
    assert [threads.check(address, False) for _ in range(MAX_FAILURES)] == ["0"] * MAX_FAILURES


def test_only_suspects_are_checked_on_the_separate_thread(threads, caplog):
    make_suspect(threads)
    assert threads.check(GUESSER, False) == "suspects"
    assert threads.check(HONEST, True) == "0"
    assert threads.check(HONEST, False) == "0"
    assert threads.metric("paced-authentications-total") == 1
    lines = [record.getMessage() for record in caplog.records if "suspect_check_percent" in record.getMessage()]
    assert lines == [
        "listener=test address=192.0.2.1: 10 checks of passwords have failed; further ones wait (suspect_check_percent)"
    ]


def test_others_do_not_wait_behind_a_suspect(threads):
    make_suspect(threads)
    release, started = threading.Event(), threading.Event()
    threads.submit(GUESSER, False, wait_for=release, started=started)
    assert started.wait(60)
    threads.submit(GUESSER, False)
    assert threads.metric("waiting-suspect-authentications") == 1
    _, ended = threads.submit(HONEST, True)
    assert ended.wait(60)
    release.set()
    threads.settle()
    assert threads.ran[MAX_FAILURES:] == [(HONEST, "0"), (GUESSER, "suspects"), (GUESSER, "suspects")]


def test_checks_of_one_address_above_the_limit_move_to_the_separate_thread(threads):
    release, started = threading.Event(), threading.Event()
    threads.submit(HONEST, True, wait_for=release, started=started)
    assert started.wait(60)
    for _ in range(3 * MAX_FAILURES):
        threads.submit(GUESSER, False)
    assert threads.metric("waiting-authentications") == 3 * MAX_FAILURES
    release.set()
    threads.settle()
    assert sorted(thread for _, thread in threads.ran[1:]) == ["0"] * MAX_FAILURES + ["suspects"] * 2 * MAX_FAILURES
    assert threads.metric("paced-authentications-total") == 2 * MAX_FAILURES


def test_after_two_right_passwords_an_address_is_no_longer_suspect(threads):
    make_suspect(threads)
    assert [threads.check(GUESSER, True) for _ in range(3)] == ["suspects", "suspects", "0"]


def test_a_check_without_a_result_does_not_count(threads):
    assert [threads.check(GUESSER, None) for _ in range(3 * MAX_FAILURES)] == ["0"] * 3 * MAX_FAILURES


def test_an_answer_that_was_remembered_meanwhile_does_not_count(threads):
    assert [threads.check(GUESSER, False, cost_ms=0.05) for _ in range(3 * MAX_FAILURES)] == ["0"] * 3 * MAX_FAILURES
    make_suspect(threads)
    assert [threads.check(GUESSER, True, cost_ms=0.05) for _ in range(5)] == ["suspects"] * 5


def test_checks_without_a_password_are_not_paced(threads):
    make_suspect(threads)
    assert threads.check(GUESSER, False, None) == "0"


@pytest.mark.parametrize("threads", [100], indirect=True)
def test_with_100_percent_no_client_is_paced(threads):
    assert [threads.check(GUESSER, False) for _ in range(3 * MAX_FAILURES)] == ["0"] * 3 * MAX_FAILURES
    assert threads.metric("paced-authentications-total") == 0


def test_a_check_dropped_while_it_waits_among_suspects_does_not_run(threads):
    make_suspect(threads)
    release, started = threading.Event(), threading.Event()
    threads.submit(GUESSER, False, wait_for=release, started=started)
    assert started.wait(60)
    drops = [threads.submit(GUESSER, False, f"user-{n}")[0] for n in range(3)]
    for drop in drops:
        drop()
    assert threads.metric("waiting-suspect-authentications") == 0
    release.set()
    threads.settle()
    assert len(threads.ran) == MAX_FAILURES + 1


def test_the_check_of_a_client_that_has_left_is_dropped():
    playbook = Playbook()
    playbook.versions()
    playbook.handshake()
    frame = encode_request_header(36, 2, 1, "x") + SaslAuthenticateRequest(b"later user alice").encode(2)
    step = playbook.authenticator.receive(frame)
    step.pending(playbook._note_resumed)
    (check,) = playbook.work
    playbook.authenticator.close()
    assert playbook.dropped == [check]
    assert check() is None
    assert playbook.resumed == 0


@pytest.mark.parametrize(
    ("token", "proved"),
    [(b"later user alice", True), (b"later tell", False), (b"later fail", False),
     (b"later crash", None), (b"later challenge", None)],
)  # fmt: skip
def test_a_check_reports_the_outcome_for_its_client(token, proved):
    playbook = Playbook()
    playbook.versions()
    playbook.handshake()
    frame = encode_request_header(36, 2, 1, "x") + SaslAuthenticateRequest(token).encode(2)
    playbook.authenticator.receive(frame).pending(playbook._note_resumed)
    assert playbook.work.popleft()() is proved
    assert playbook.passwords_of == [None]
    playbook.authenticator.resume()
    playbook.authenticator.close()
    assert playbook.dropped == [], "it was not waiting any more"
