"""A simulated hour of hostile logins: all tables that grow with them stay limited."""

import gc
import random
import threading
import tracemalloc

import pytest

from klamm.sasl import SaslContext, ScramCredential
from klamm_sasl import failed_logins, plain
from klamm_sasl.credential_checks import CredentialChecks
from klamm_sasl.plain import PlainMechanism
from klamm_sasl.scram import ScramSha256
from tests.unit.sasl.playbook import Playbook
from tests.unit.sasl.test_oauthbearer import OTHER_RSA, bearer_message, listen, signed  # noqa: F401
from tests.unit.sasl.users import DictStore, credential, reconnected
from tests.waiting import wait_until

LOGINS = 3_600
SECOND_MS = 1_000
LIMIT = 200


class Flood:
    """A listener with PLAIN and SCRAM, real threads for its checks, and clients that know no password."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(failed_logins, "MAX_SOURCES", LIMIT)
        monkeypatch.setattr(plain, "REMEMBERED", LIMIT)
        self.plain = PlainMechanism()
        self.playbook = Playbook({"PLAIN": self.plain, "SCRAM-SHA-256": ScramSha256()})
        # A check of a password takes time on the clock, but no real time.
        monkeypatch.setattr(ScramCredential, "verifies", lambda *_: self.playbook.clock.advance_ms(1) is not None)
        store = DictStore([("alice", credential("sesame"))])
        for mechanism in self.playbook.mechanisms.values():
            mechanism.open(SaslContext(self.playbook.listener, [store], self.playbook.sessions))
        self.checks = CredentialChecks(self.playbook.listener, 1, 50)
        self.random = random.Random(1)

    def log_in(self):
        """Log in once from some address, under some name. Some clients leave before the answer."""
        number = self.random.randrange(10**9)
        user = f"user{number}" + "x" * self.random.choice([0, 10, 5_000])
        address = f"198.51.{number % 250}.{number // 250 % 250}" if number % 3 else "192.0.2.1"
        client = Playbook(self.playbook.mechanisms, beside=self.playbook)
        client.authenticator._submit = lambda check, password_of: self.checks.submit(check, address, password_of)
        if number % 2:
            client.handshake("SCRAM-SHA-256")
            client.token(f"n,,n={user},r=nonce{number}".encode())
            step = client.token(b"c=biws,r=nonce,p=AAAA")[0]
            assert step.failed
        else:
            client.handshake("PLAIN")
            self._guess(client, user, str(number))
        client.authenticator.close()

    def _guess(self, client, user, password):
        resumed = threading.Event()
        request = client.token
        client.settle = lambda step: step if step.pending is None else self._wait(client, step, resumed)
        step = request(f"\0{user}\0{password}".encode())[0]
        assert step.pending is not None or step.failed

    def _wait(self, client, step, resumed):
        step.pending(resumed.set)
        if self.random.random() < 0.3:
            client.authenticator.close()
            return step
        assert resumed.wait(60)
        return client.authenticator.resume()

    def sizes(self):
        """Return the sizes of all tables that grow with users or addresses."""
        checks = self.checks
        return {
            "sources": len(checks._failed_logins),
            "waiting": checks._workers.waiting + checks._paced_worker.waiting,
            "lines": len(checks._lines._seen),
            "wrong": len(self.plain._wrong),
            "right": len(self.plain._right),
            "sessions": len(self.playbook.sessions),
            "timers": self.playbook.services.scheduler.timer_count,
        }


@pytest.fixture
def flood(monkeypatch):
    flood = Flood(monkeypatch)
    yield flood
    flood.checks.close()


def test_an_hour_of_wrong_passwords_leaves_little_in_memory(flood):
    def some(count):
        for _ in range(count):
            flood.log_in()
            flood.playbook.pass_time(SECOND_MS)

    some(LOGINS // 3)
    gc.collect()
    before = len(gc.get_objects())
    some(LOGINS - LOGINS // 3)
    gc.collect()
    more = len(gc.get_objects()) - before
    sizes = flood.sizes()
    assert sizes["sources"] == LIMIT, "the test fills what has an end"
    assert sizes["wrong"] == LIMIT
    assert (sizes["right"], sizes["sessions"]) == (0, 0)
    wait_until(lambda: flood.sizes()["waiting"] == 0)
    assert sizes["lines"] <= 100
    assert sizes["timers"] <= 100
    assert more < LOGINS // 4, f"{more} objects more after {LOGINS} logins"


def test_data_of_clients_that_leave_is_freed(listen):  # noqa: F811
    """Tokens with an unknown key wait until keys are fetched, which may take ten seconds."""
    playbook = listen()
    works = []

    def begin(step):
        step.pending(lambda: None)
        return step

    playbook.mechanisms["OAUTHBEARER"].keys.submit = works.append
    token = signed(OTHER_RSA, padding="x" * 300_000)
    tracemalloc.start()
    try:
        for _ in range(10):
            client = reconnected(playbook)
            client.settle = begin
            client.token(bearer_message(token))
            client.authenticator.close()
            del client
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(works) == 10
    assert held < 500_000
    for work in works:
        work()
