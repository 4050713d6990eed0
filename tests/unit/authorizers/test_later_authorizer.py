"""`LaterAuthorizer`: what it decides, keeps, renews, denies, and what it lets wait."""

import threading
import time
from itertools import islice

import pytest

from klamm import KafkaPrincipal
from klamm.requests.preparing import preparing
from klamm.testing import check_authorizer
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.unit.authorizers.later import ALICE, PATIENCE_S, READ, TOPIC, WRITE, Opened, Policy, elsewhere, released
from tests.waiting import wait_until


def test_what_was_prepared_is_decided_at_once(opened):
    it = opened()
    it.settle("orders", "other")
    assert (it.may(READ, "orders"), it.may(WRITE, "orders"), it.may(READ, "other")) == (True, False, False)
    assert it.prepare("orders", "other") is None
    assert sorted(it.policy.asked) == [("User:alice", "orders"), ("User:alice", "other")]
    assert it.metric("AnswersTotal") == {"decided": 2, "failed": 0, "refused": 0}
    assert it.metric("CachedDecisions") == {None: 2}


def test_a_decision_is_that_of_one_principal(opened):
    it = opened()
    it.settle("orders")
    assert not it.may(READ, "orders", it.request(KafkaPrincipal("bob")))


def test_what_is_not_decided_is_denied_and_requests_share_the_decision(opened):
    it = opened()
    it.policy.go_on.clear()
    assert not it.may(READ, "orders")
    assert it.prepare("orders") is not None
    assert it.metric("InFlight") == {None: 1}
    it.policy.go_on.set()
    it.settle("orders")
    assert it.may(READ, "orders")
    assert it.policy.asked == [("User:alice", "orders")]


def test_what_a_request_does_not_name_does_not_wait_for_room(opened):
    it = opened(max_in_flight=1)
    it.policy.go_on.clear()
    assert it.prepare("orders") is not None
    assert not it.may(READ, "other")
    assert it.metric("AnswersTotal")["refused"] == 1
    assert it.metric("WaitingDecisions") == {None: 0}


@pytest.mark.parametrize("max_in_flight", [1, 4, 7])
def test_a_request_with_more_names_than_may_be_in_flight_gets_all_decisions(opened, max_in_flight):
    it = opened(max_in_flight=max_in_flight)
    names = [f"topic-{number}" for number in range(50)]
    it.policy.readable.update(names)
    it.policy.go_on.clear()
    done = released(it.prepare(*names))
    slots = max(1, max_in_flight // 2)
    assert (it.metric("InFlight"), it.metric("WaitingDecisions")) == ({None: slots}, {None: 50 - slots})
    it.policy.go_on.set()
    assert done.wait(PATIENCE_S)
    assert [name for name in names if not it.may(READ, name)] == []
    assert it.metric("AnswersTotal") == {"decided": 50, "failed": 0, "refused": 0}
    assert it.metric("WaitingDecisions") == {None: 0}


def test_the_clients_of_one_address_have_half_of_the_decisions(opened):
    it = opened(max_in_flight=4)
    it.policy.go_on.clear()
    many = released(it.prepare("first", "second", "third", "fourth"))
    assert it.metric("InFlight") == {None: 2}
    few = released(it.policy.prepare(elsewhere(it), [(TOPIC, "third")]))
    assert (it.metric("InFlight"), it.metric("WaitingDecisions")) == ({None: 3}, {None: 2})
    it.policy.go_on.set()
    assert few.wait(PATIENCE_S)
    assert many.wait(PATIENCE_S)
    assert it.policy.asked.count(("User:alice", "third")) == 2


def test_requests_that_wait_share_a_decision_that_another_began(opened):
    it = opened(max_in_flight=2)
    it.policy.go_on.clear()
    waits = [released(it.prepare("first", "orders")), released(it.prepare("orders", "last"))]
    it.policy.go_on.set()
    for wait in waits:
        assert wait.wait(PATIENCE_S)
    assert it.may(READ, "orders")
    assert sorted(name for _, name in it.policy.asked) == ["first", "last", "orders"]


def test_what_waits_too_long_is_denied_and_waits_no_more(opened):
    it = opened(max_in_flight=2, timeout_ms=1_000)
    it.policy.go_on.clear()
    done = released(it.prepare("first", "second", "third"))
    it.listener.advance_ms(1_001)
    assert done.is_set()
    assert it.metric("WaitingDecisions") == {None: 0}
    assert it.metric("AnswersTotal")["refused"] == 2
    it.policy.go_on.set()
    wait_until(lambda: it.metric("InFlight") == {None: 0})
    assert it.policy.asked == [("User:alice", "first")]


def test_places_to_wait_have_limits_of_their_own(opened):
    it = opened(max_in_flight=2, max_waiting=4)
    it.policy.go_on.clear()
    it.prepare("first", "second", "third", "fourth", "fifth")
    assert it.metric("WaitingDecisions") == {None: 2}
    assert it.metric("AnswersTotal")["refused"] == 2
    # Another address has the other half of both.
    it.policy.prepare(elsewhere(it), [(TOPIC, name) for name in ("first", "second", "third")])
    assert it.metric("WaitingDecisions") == {None: 4}
    assert it.metric("AnswersTotal")["refused"] == 2


def test_a_request_in_flight_keeps_its_decisions_when_the_rules_change(opened):
    it = opened()
    it.settle("orders", "other")
    it.policy.go_on.clear()
    it.policy.forget()
    assert it.may(READ, "orders")
    assert not it.may(READ, "other")
    assert not it.may(READ, "orders", it.request(ALICE))


def test_a_request_that_found_all_decisions_keeps_them_too(opened):
    it = opened()
    it.settle("orders")
    it.context = it.request(ALICE)
    assert it.prepare("orders") is None
    it.policy.forget()
    assert it.may(READ, "orders")


def test_a_request_may_name_more_than_the_cache_holds(opened):
    it = opened(cache_entries=1)
    it.policy.readable.add("second")
    it.settle("orders", "second")
    assert it.may(READ, "orders")
    assert it.may(READ, "second")
    assert it.metric("CachedDecisions") == {None: 1}


def test_the_decisions_of_a_request_end_with_their_time(opened):
    it = opened(cache_ms=10_000)
    it.settle("orders")
    it.policy.go_on.clear()
    it.policy.forget()
    it.listener.advance_ms(9_999)
    assert it.may(READ, "orders")
    it.listener.advance_ms(1)
    assert not it.may(READ, "orders")


def test_names_that_no_topic_can_have_are_not_prepared(opened):
    it = opened()
    named = MetadataRequest([MetadataRequestTopic(name="a" * length) for length in (249, 250)])
    assert preparing(it.policy, None)(named, it.context) is not named
    wait_until(lambda: len(it.policy.asked) == 2 and it.metric("InFlight") == {None: 0})
    assert {len(name) for _, name in it.policy.asked} == {249, len("kafka-cluster")}


def test_long_names_are_denied_and_not_kept(opened):
    it = opened()
    it.policy.readable.add("a" * 1_025)
    assert it.prepare("a" * 1_025) is None
    assert not it.may(READ, "a" * 1_025)
    assert it.policy.prepare(it.request(KafkaPrincipal("b" * 1_025)), [(TOPIC, "orders")]) is None
    assert it.policy.asked == []
    assert it.metric("AnswersTotal")["refused"] == 3


def test_decisions_that_have_ended_leave_the_cache(opened):
    it = opened(cache_ms=1_000)
    it.settle("first", "second")
    it.listener.advance_ms(1_000)
    it.settle("third")
    assert it.metric("CachedDecisions") == {None: 1}


def test_a_decision_ends_and_one_in_use_is_renewed_before(opened):
    it = opened(cache_ms=1_000)
    it.settle("orders")
    it.policy.readable.clear()
    it.listener.advance_ms(1_000)
    assert not it.cached(READ, "orders")
    it.settle("orders")
    it.policy.readable.add("orders")
    it.listener.advance_ms(500)
    it.policy.go_on.clear()
    assert not it.cached(READ, "orders")
    assert it.metric("InFlight") == {None: 1}


def test_a_request_that_waits_keeps_what_ends_meanwhile(opened):
    it = opened(cache_ms=10_000, timeout_ms=2_000)
    it.settle("orders", "closed")
    it.listener.advance_ms(9_995)
    it.context = it.request(ALICE)
    it.policy.go_on.clear()
    done = released(it.prepare("orders", "closed", "other"))
    it.listener.advance_ms(1_990)
    it.policy.go_on.set()
    assert done.wait(PATIENCE_S)
    # It may also wait for its handler.
    it.listener.advance_ms(1_990)
    assert it.may(READ, "orders")
    assert not it.may(READ, "closed")


@pytest.mark.parametrize("cache_ms", [1, 1_000, 30_000])
def test_a_request_keeps_a_decision_that_ends_before_its_handler(opened, cache_ms):
    it = opened(cache_ms=cache_ms)
    it.settle("orders")
    it.listener.advance_ms(5)
    assert it.may(READ, "orders")


def test_a_request_keeps_a_decision_that_ends_soon_for_a_limited_time(opened):
    it = opened(timeout_ms=2_000)
    it.settle("orders")
    it.listener.advance_ms(29_900)
    it.context = it.request(ALICE)
    assert it.prepare("orders") is None
    it.policy.is_down = True
    it.listener.advance_ms(200)
    assert it.may(READ, "orders")
    # Also after a decision that failed meanwhile.
    wait_until(lambda: it.metric("AnswersTotal")["failed"])
    assert it.may(READ, "orders")
    assert not it.cached(READ, "orders")
    it.listener.advance_ms(3_800)
    assert not it.may(READ, "orders")


def test_the_oldest_decision_makes_room(opened):
    it = opened(cache_entries=2)
    for name in ("orders", "second", "third"):
        it.settle(name)
    assert it.metric("CachedDecisions") == {None: 2}
    assert it.prepare("third") is None
    assert it.prepare("orders") is not None


def test_some_topic_may_be_read_once_one_is_known(opened):
    it = opened()
    assert not it.policy.authorize_by_resource_type(it.context, READ, TOPIC)
    it.settle("orders")
    assert it.policy.authorize_by_resource_type(it.context, READ, TOPIC)
    assert not it.policy.authorize_by_resource_type(it.context, WRITE, TOPIC)


def test_what_is_forgotten_is_decided_again(opened):
    it = opened()
    it.settle("orders")
    it.policy.readable.clear()
    it.policy.forget()
    assert it.metric("CachedDecisions") == {None: 0}
    it.settle("orders")
    assert not it.may(READ, "orders")


def test_a_decision_that_was_being_made_is_made_again(opened):
    it = opened()
    rounds = iter([True, False])
    started, go_on = threading.Event(), threading.Event()

    def permitted(*_):
        is_first = next(rounds)
        started.set()
        go_on.wait(PATIENCE_S)
        return [READ] if is_first else []

    it.policy.permitted = permitted
    released = threading.Event()
    it.prepare("orders").when_released(released.set)
    assert started.wait(PATIENCE_S)
    it.policy.forget()
    go_on.set()
    assert released.wait(PATIENCE_S)
    assert not it.may(READ, "orders")


class Restless(Policy):
    """Its rules change while each of the first `changes` decisions is made."""

    changes = 0

    def permitted(self, principal, host, resource_type, resource_name):
        allowed = super().permitted(principal, host, resource_type, resource_name)
        if len(self.asked) <= self.changes:
            self.changed()
        return allowed

    def changed(self):
        self.forget()


def restless(it, changes):
    """Let `it` have rules that change often."""
    it.policy.close()
    it.policy = Restless(it.policy.settings)
    it.policy.changes = changes
    it.policy.open(it.listener.context)


def test_rules_that_change_all_the_time_do_not_keep_a_request_waiting(opened):
    it = opened(max_in_flight=2)
    restless(it, changes=20)
    it.settle("orders")
    assert len(it.policy.asked) == 2
    assert it.may(READ, "orders")
    wait_until(lambda: it.metric("InFlight") == {None: 0})
    # The decision is that request's alone.
    assert it.metric("CachedDecisions") == {None: 0}
    it.policy.changes = 0
    it.settle("second")
    assert it.metric("CachedDecisions")[None] >= 1


def test_a_request_gets_no_decision_of_rules_before_it(opened):
    it = opened(max_in_flight=2)
    restless(it, changes=2)
    late = it.request(ALICE)
    waits = []

    def changed():
        it.policy.forget()
        if len(it.policy.asked) == 2:
            it.policy.readable.clear()
            it.policy.forget()
            waits.append(released(it.policy.prepare(late, [(TOPIC, "orders")])))

    it.policy.changed = changed
    it.settle("orders")
    assert waits[0].wait(PATIENCE_S)
    assert it.may(READ, "orders")
    assert not it.may(READ, "orders", late)
    wait_until(lambda: it.metric("InFlight") == {None: 0})
    assert len(it.policy.asked) == 3


def test_decisions_that_many_requests_wait_for_are_given_out_in_parts(opened):
    it = opened(max_in_flight=2, max_waiting=2_000, threads=1)
    waiting = []

    def prepare(name):
        context = it.request(ALICE)
        release = it.policy.prepare(context, [(TOPIC, name)])
        release.when_released(lambda: waiting.append(it.metric("WaitingDecisions")[None]))
        return context

    it.policy.go_on.clear()
    contexts = [prepare("first"), *(prepare("orders") for _ in range(450))]
    it.policy.go_on.set()
    wait_until(lambda: len(waiting) == len(contexts))
    # The lock is free in between.
    assert sorted(set(waiting)) == [0, 49, 149, 249, 349, 449]
    assert [context for context in contexts[1:] if not it.may(READ, "orders", context)] == []


def cost_of_a_full_cache(entries):
    """Return the seconds of processor time for a decision that makes another leave."""
    it = Opened(cache_entries=entries)
    keep = it.policy._LaterAuthorizer__keep
    numbers = iter(range(10**9))

    def add(count):
        for number in islice(numbers, count):
            keep((ALICE, "192.0.2.7", TOPIC, number), frozenset(), 0, 1_000_000_000)

    add(entries)
    began = time.thread_time()
    add(60_000)
    took_s = time.thread_time() - began
    it.policy.close()
    return took_s


@pytest.mark.interpreted
def test_a_large_cache_that_is_full_costs_as_much_as_a_small_one():
    assert min(cost_of_a_full_cache(100_000) for _ in range(2)) < 4 * cost_of_a_full_cache(100)


def test_it_keeps_the_contract_of_authorizers():
    check_authorizer(Policy)
