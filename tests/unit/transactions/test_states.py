"""Tests of one transactional id: its transitions, and their effect on producer id, epoch and partitions."""

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from klamm import ErrorCode, KafkaError
from klamm_broker.transactions.ending import check_end
from klamm_broker.transactions.state import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    NEXT_STATES,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    IllegalTransitionError,
    TransactionState,
)
from klamm_broker.transactions.transaction import MAX_EPOCH, Transaction, TransactionRecord

ONE = frozenset({("t", 0)})


def in_state(state, epoch=3, **fields):
    record = TransactionRecord(7, 60_000, 0, epoch, state=state, start_ms=0, **fields)
    return Transaction("x", record)


def attempt(transaction, target):
    """Prepare a transition with its method."""
    if target is EMPTY:
        transaction.begin_epoch(60_000, None, 1)
    elif target is ONGOING:
        transaction.add(ONE, 0, 1)
    elif target in (PREPARE_COMMIT, PREPARE_ABORT):
        transaction.end(target, 2, -1, 1)
    elif target in (COMPLETE_COMMIT, COMPLETE_ABORT):
        if transaction.completion(1).state is not target:
            transaction.give_up()
            raise IllegalTransitionError("x", transaction.state, target)
    elif target is DEAD:
        transaction.expire()
    else:
        transaction.fence(0)


@pytest.mark.parametrize(("source", "target"), list(itertools.product(TransactionState, TransactionState)))
def test_only_the_transitions_of_the_table_are_allowed(source, target):
    transaction = in_state(source)
    if source is PREPARE_EPOCH_FENCE:
        # This state is always pending.
        transaction = in_state(ONGOING)
        transaction.fence(0)
    if target in NEXT_STATES[source]:
        attempt(transaction, target)
        assert transaction.pending is target
    else:
        with pytest.raises(IllegalTransitionError):
            attempt(transaction, target)


@pytest.mark.parametrize("target", TransactionState)
def test_no_transition_begins_while_another_is_pending(target):
    transaction = in_state(ONGOING)
    transaction.add(frozenset({("t", 1)}), 0, 1)
    with pytest.raises(IllegalTransitionError):
        attempt(transaction, target)


def test_only_a_pending_transition_can_complete():
    transaction = in_state(EMPTY)
    record = transaction.add(ONE, 0, 1)
    transaction.give_up()
    with pytest.raises(IllegalTransitionError):
        transaction.complete(record)
    assert transaction.state is EMPTY


@pytest.mark.parametrize(
    ("expected", "epoch", "last"),
    [(None, 4, -1), (3, 4, 3), (2, 3, 2)],
)
def test_epochs_of_a_producer_that_starts_or_continues(expected, epoch, last):
    transaction = in_state(EMPTY, last_producer_epoch=2)
    record = transaction.begin_epoch(1000, expected, 5)
    assert (record.producer_epoch, record.last_producer_epoch, record.timeout_ms) == (epoch, last, 1000)
    assert (record.partitions, record.start_ms, record.update_ms) == (frozenset(), -1, 5)


def test_another_epoch_is_fenced():
    with pytest.raises(KafkaError) as caught:
        in_state(EMPTY, last_producer_epoch=2).begin_epoch(1000, 1, 5)
    assert caught.value.error_code == ErrorCode.PRODUCER_FENCED


def test_after_the_last_epoch_a_new_producer_id_is_needed():
    transaction = in_state(COMPLETE_COMMIT, MAX_EPOCH - 1)
    with pytest.raises(IllegalTransitionError):
        transaction.begin_epoch(1000, None, 5)
    record = transaction.rotate_producer_id(8, 1000, 5, keeps_epoch=True)
    assert (record.producer_id, record.producer_epoch, record.previous_producer_id) == (8, 0, 7)
    assert record.last_producer_epoch == MAX_EPOCH - 1


@pytest.mark.parametrize(("version", "epoch", "last"), [(0, 3, -1), (1, 3, -1), (2, 4, 3)])
def test_an_end_raises_the_epoch_from_version_2_on(version, epoch, last):
    transaction = in_state(ONGOING)
    record = transaction.end(PREPARE_COMMIT, version, -1, 5)
    assert (record.producer_epoch, record.last_producer_epoch, record.start_ms) == (epoch, last, 0)


def test_a_fence_raises_the_epoch_once_until_it_is_written():
    transaction = in_state(ONGOING)
    transaction.fence(0)
    assert transaction.record.producer_epoch == 4
    transaction.end(PREPARE_ABORT, 0, -1, 5)
    transaction.give_up()
    transaction.has_failed_fence = True
    transaction.fence(0)
    assert transaction.record.producer_epoch == 4
    transaction.complete(transaction.end(PREPARE_ABORT, 0, -1, 6))
    assert not transaction.has_failed_fence


def test_the_end_raises_the_epoch_of_a_fenced_producer_from_version_2_on():
    """Since KAFKA-19367, the end raises it only once."""
    transaction = in_state(ONGOING)
    transaction.fence(2)
    record = transaction.end(PREPARE_ABORT, 2, -1, 5)
    assert (record.producer_epoch, record.last_producer_epoch) == (4, 3)


def test_the_next_producer_id_takes_over_at_the_completion():
    transaction = in_state(ONGOING, MAX_EPOCH - 1, partitions=ONE)
    transaction.complete(transaction.end(PREPARE_COMMIT, 2, 8, 5))
    assert (transaction.record.producer_id, transaction.record.producer_epoch) == (7, MAX_EPOCH)
    record = transaction.completion(6)
    assert (record.producer_id, record.producer_epoch, record.last_producer_epoch) == (8, 0, MAX_EPOCH - 1)
    assert (record.partitions, record.next_producer_id) == (frozenset(), -1)


# Ends, by the table of Kafka's `TransactionCoordinator`

FENCED = ErrorCode.PRODUCER_FENCED
WRONG = ErrorCode.INVALID_TXN_STATE
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
STATES = (EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT)
ENDS = {
    # version, committed, epoch of the request less that of the transaction: outcome in each state
    (2, False, -1): (FENCED, FENCED, WRONG, BUSY, WRONG, False),
    (2, False, 0): (True, True, FENCED, FENCED, True, True),
    (2, True, -1): (FENCED, FENCED, BUSY, WRONG, False, WRONG),
    (2, True, 0): (WRONG, True, FENCED, FENCED, WRONG, WRONG),
    (2, True, 1): (FENCED,) * 6,
    (2, False, -2): (FENCED,) * 6,
    (0, False, -1): (FENCED,) * 6,
    (0, False, 0): (WRONG, True, WRONG, BUSY, WRONG, False),
    (0, True, 0): (WRONG, True, BUSY, WRONG, False, WRONG),
    (0, True, 1): (FENCED,) * 6,
}


def outcome(transaction, producer_id, epoch, version, committed):
    try:
        return check_end(transaction, producer_id, epoch, version, committed=committed)
    except KafkaError as error:
        return error.error_code


@pytest.mark.parametrize(("state", "index"), [(state, index) for index, state in enumerate(STATES)])
@pytest.mark.parametrize("request_", ENDS, ids=str)
def test_transactions_end_as_their_state_allows(state, index, request_):
    version, committed, difference = request_
    transaction = in_state(state, 3)
    assert outcome(transaction, 7, 3 + difference, version, committed) == ENDS[request_][index]


def test_another_producer_does_not_end_a_transaction():
    assert outcome(in_state(ONGOING), 8, 3, 2, True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_request_during_a_pending_transition_must_be_repeated():
    transaction = in_state(ONGOING)
    transaction.add(frozenset({("u", 0)}), 0, 1)
    assert outcome(transaction, 7, 3, 2, True) == BUSY


@pytest.mark.parametrize(("state", "expected"), [(COMPLETE_COMMIT, False), (COMPLETE_ABORT, WRONG), (ONGOING, FENCED)])
def test_retry_with_the_previous_producer_id_is_recognized(state, expected):
    transaction = in_state(state, 0, previous_producer_id=6)
    assert outcome(transaction, 6, MAX_EPOCH - 1, 2, True) == expected


class Machine(RuleBasedStateMachine):
    """Random requests and outcomes of writes. Only allowed transitions happen, and epochs never decrease."""

    def __init__(self):
        super().__init__()
        self.transaction = Transaction("x", TransactionRecord(7, 60_000, 0))
        self.target = None
        self.seen = (7, -1)
        self.next_id = 8

    def prepare(self, record):
        self.target = record

    @precondition(
        lambda self: self.target is None and self.transaction.state in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
    )
    @rule(goes_on=st.booleans())
    def begin(self, goes_on):
        epoch = self.transaction.record.producer_epoch
        if epoch >= MAX_EPOCH - 1:
            self.prepare(self.transaction.rotate_producer_id(self.next_id, 1000, 1, keeps_epoch=goes_on))
            self.next_id += 1
        else:
            self.prepare(self.transaction.begin_epoch(1000, epoch if goes_on else None, 1))

    @precondition(
        lambda self: (
            self.target is None
            and self.transaction.record.producer_epoch >= 0
            and self.transaction.state in (EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT)
        )
    )
    @rule(index=st.integers(0, 3), version=st.sampled_from([0, 2]))
    def add(self, index, version):
        self.prepare(self.transaction.add(frozenset({("t", index)}), version, 1))

    @precondition(lambda self: self.target is None and self.transaction.record.producer_epoch >= 0)
    @rule(committed=st.booleans(), version=st.sampled_from([0, 2]), difference=st.sampled_from([-1, 0, 0, 0]))
    def end(self, committed, version, difference):
        record = self.transaction.record
        if (
            outcome(self.transaction, record.producer_id, record.producer_epoch + difference, version, committed)
            is True
        ):
            next_id = self.next_id if version == 2 and record.producer_epoch >= MAX_EPOCH - 1 else -1
            self.prepare(self.transaction.end(PREPARE_COMMIT if committed else PREPARE_ABORT, version, next_id, 1))
            self.next_id += 1

    @precondition(lambda self: self.target is None and self.transaction.state is ONGOING)
    @rule(version=st.sampled_from([0, 2]))
    def fence(self, version):
        self.transaction.fence(version)
        self.prepare(self.transaction.end(PREPARE_ABORT, version, -1, 1))

    @precondition(lambda self: self.target is None and self.transaction.state in (PREPARE_COMMIT, PREPARE_ABORT))
    @rule()
    def markers_are_durable(self):
        self.prepare(self.transaction.completion(1))

    @precondition(lambda self: self.target is not None)
    @rule(fails=st.booleans())
    def written(self, fails):
        before = self.transaction.state
        if fails:
            self.transaction.give_up()
            assert self.transaction.state is before
        else:
            self.transaction.complete(self.target)
            assert self.target.state in NEXT_STATES[before]
        self.target = None

    @rule()
    def near_the_last_epoch(self):
        if self.target is None and self.transaction.state is EMPTY and self.transaction.record.producer_epoch < 100:
            self.transaction.record = self.transaction.record._replace(producer_epoch=MAX_EPOCH - 3)
            self.seen = (self.transaction.record.producer_id, MAX_EPOCH - 3)

    @invariant()
    def producers_go_forward(self):
        record = self.transaction.record
        assert (record.producer_id, record.producer_epoch) >= self.seen
        assert record.producer_epoch <= MAX_EPOCH
        self.seen = (record.producer_id, record.producer_epoch)

    @invariant()
    def a_transaction_at_rest_has_no_partitions(self):
        record = self.transaction.record
        assert not record.partitions or record.state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT)
        assert (record.start_ms >= 0) or record.state is EMPTY


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestMachine = Machine.TestCase
