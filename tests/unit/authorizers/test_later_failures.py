"""`LaterAuthorizer`: decisions, requests and threads that fail or are closed."""

import pytest

from klamm.requests.preparing import preparing
from klamm.wire.messages.metadata import MetadataRequest
from tests.unit.authorizers.later import PATIENCE_S, READ, Policy, released
from tests.waiting import wait_until


def test_a_failure_is_a_denial_that_is_tried_again(opened, caplog):
    it = opened()
    it.settle("broken")
    assert not it.may(READ, "broken")
    assert "ConnectionError: the engine does not answer" in caplog.text
    it.listener.advance_ms(1_001)
    it.settle("broken")
    assert len(it.policy.asked) == 2
    assert it.metric("AnswersTotal")["failed"] == 2


def test_a_panic_is_a_failure_and_the_thread_goes_on(opened):
    it = opened(threads=1)
    it.policy.readable.add("after")
    permitted = it.policy.permitted

    def panics(principal, host, resource_type, name):
        if name == "panic":
            raise SystemExit
        return permitted(principal, host, resource_type, name)

    it.policy.permitted = panics
    it.settle("panic")
    it.settle("after")
    assert it.may(READ, "after")
    assert not it.may(READ, "panic")


def test_a_failed_renewal_leaves_a_decision_that_holds(opened):
    it = opened(cache_ms=10_000)
    it.settle("orders")
    it.policy.is_down = True
    it.listener.advance_ms(5_000)
    assert it.cached(READ, "orders")
    wait_until(lambda: it.metric("InFlight") == {None: 0})
    assert it.metric("AnswersTotal")["failed"] == 1
    it.listener.advance_ms(999)
    assert it.cached(READ, "orders")
    assert it.metric("InFlight") == {None: 0}
    it.listener.advance_ms(1)
    assert it.cached(READ, "orders")
    wait_until(lambda: it.metric("AnswersTotal")["failed"] == 2)
    it.listener.advance_ms(4_000)
    assert not it.cached(READ, "orders")


class Unprintable(Exception):
    """An error without a text."""

    def __str__(self):
        raise ValueError("no text")


def test_an_error_whose_text_cannot_be_made_is_a_failure(opened, caplog):
    it = opened(max_in_flight=2)

    def permitted(*_):
        raise Unprintable

    it.policy.permitted = permitted
    done = released(it.prepare("orders"))
    wait_until(lambda: it.metric("AnswersTotal")["failed"])
    wait_until(lambda: it.metric("InFlight") == {None: 0})
    assert done.wait(PATIENCE_S)
    assert not it.may(READ, "orders")
    assert "Unprintable: (its text cannot be made)" in caplog.text


def raising():
    raise RuntimeError("the connection is gone")


def test_a_request_that_cannot_go_on_hinders_no_other(opened, caplog):
    it = opened(max_in_flight=2, threads=1)
    it.policy.go_on.clear()
    it.prepare("orders").when_released(raising)
    others = [released(it.prepare(name)) for name in ("orders", "second", "third")]
    it.policy.go_on.set()
    wait_until(lambda: it.metric("AnswersTotal")["decided"] == 3)
    for one in others:
        assert one.wait(PATIENCE_S)
    assert "cannot go on: RuntimeError: the connection is gone" in caplog.text


def test_closing_and_time_release_all_even_if_one_cannot_go_on(opened):
    it = opened(max_in_flight=2, timeout_ms=1_000)
    it.policy.go_on.clear()
    it.prepare("orders").when_released(raising)
    waits = [released(it.prepare("orders"))]
    it.prepare("second").when_released(raising)
    waits.append(released(it.prepare("second")))
    it.listener.advance_ms(1_001)
    assert waits[1].is_set()
    it.policy.close()
    assert waits[0].is_set()


def test_closing_releases_what_waits(opened):
    it = opened(max_in_flight=2)
    it.policy.go_on.clear()
    waits = [released(it.prepare("orders")), released(it.prepare("second"))]
    it.policy.close()
    assert [wait.is_set() for wait in waits] == [True, True]
    assert it.prepare("other") is None


@pytest.mark.interpreted
def test_requests_are_released_before_the_threads_end(opened, monkeypatch):
    it, order = opened(), []
    it.policy.go_on.clear()
    it.prepare("orders").when_released(lambda: order.append("released"))
    monkeypatch.setattr(
        it.policy._LaterAuthorizer__workers, "close", lambda timeout_s=1.0: order.append(f"closed {timeout_s}")
    )
    it.policy.close()
    assert order == ["released", "closed 0"]
    monkeypatch.undo()


@pytest.mark.parametrize("fault", [lambda: 1 / 0, lambda: "soon"], ids=["raises", "wrong type"])
def test_a_prepare_that_fails_lets_the_request_go_on(opened, caplog, fault):
    class Faulty(Policy):
        def prepare(self, context, resources):
            return fault()

    message = MetadataRequest()
    assert preparing(Faulty(), None)(message, opened().context) is message
    assert "Faulty failed in prepare" in caplog.text
