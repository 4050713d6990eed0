"""Tests of a kill in every state: a start on the files of that moment continues or completes the transaction.

A copy of the data directory equals the state after `kill -9`: writes to the page cache and committed rows survive.
"""

import errno
import shutil

import pytest

from klamm import ErrorCode
from klamm_broker.broker import Broker
from klamm_broker.storage.store import Store, StoreError
from klamm_broker.transactions.ends import ProducerIdAndEpoch
from tests.unit.transactions.transactions_harness import ID, Producer, TransactionsHarness
from tests.waiting import wait_until


@pytest.fixture
def producer(harness):
    producer = Producer(harness)
    assert producer.init() == 0
    return producer


@pytest.fixture
def killed(harness, tmp_path):
    """Return a function that starts a broker on the present files, as if the process had been killed now."""
    started = []

    def kill():
        copy = tmp_path / f"copy-{len(started)}"
        shutil.copytree(harness.data_dir, copy)
        after = TransactionsHarness(copy)
        after.clock.advance_ms(harness.clock.wall_ms() - after.clock.wall_ms())
        after.open()
        started.append(after)
        return after

    yield kill
    for each in started:
        each.broker.close()


def take_over(producer, harness):
    """Return the same producer, connected to the started broker."""
    producer._harness = harness
    return producer


def write_some(producer):
    assert producer.produce("t", b"a").error_code == 0
    assert producer.produce("u", b"b").error_code == 0
    assert producer.commit_offset("u", 5) == 0


def test_an_empty_transaction_is_usable_after_a_kill(harness, producer, killed):
    harness.settle()
    after = killed()
    assert after.state() == "Empty"
    assert take_over(producer, after).produce("t", b"a").error_code == 0
    assert producer.end(committed=True) == 0
    assert after.values("t") == [b"a"]


def test_ongoing_transaction_continues_after_a_kill(harness, producer, killed):
    write_some(producer)
    after = killed()
    assert (after.state(), after.latest("t")) == ("Ongoing", 0)
    assert after.committed_offset("u") == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert take_over(producer, after).produce("t", b"c").error_code == 0
    assert producer.end(committed=True) == 0
    assert (after.values("t"), after.values("u"), after.committed_offset("u")) == ([b"a", b"c"], [b"b"], (0, 5))


def test_partitions_that_were_added_one_by_one_survive_a_kill(harness, producer, killed):
    for topic, index in (("t", 0), ("t", 1), ("u", 0)):
        assert producer.add((topic, index)) == [0]
    after = killed()
    take_over(producer, after)
    assert [producer.produce(topic, b"a", version=11).error_code for topic in ("t", "u")] == [0, 0]
    assert producer.end(committed=True) == 0
    # The next transaction has none of these partitions.
    assert producer.add(("t", 1)) == [0]
    again = TransactionsHarness(after.data_dir)
    after.broker.close()
    again.open()
    assert take_over(producer, again).produce("u", b"b", version=11).error_code == ErrorCode.TRANSACTION_ABORTABLE
    again.broker.close()


def test_an_ongoing_transaction_without_its_producer_is_aborted(harness, producer, killed):
    write_some(producer)
    after = killed()
    after.advance_ms(80_000)
    after.wait_for_state("CompleteAbort")
    assert (after.values("t"), after.latest("t"), after.committed_offset("u")) == ([], 2, (0, -1))


@pytest.mark.parametrize("committed", [False, True])
def test_prepared_transaction_is_completed_after_a_kill(harness, producer, killed, committed):
    write_some(producer)
    harness.stick_markers()
    request = producer.end_request(committed=committed)
    ending = harness.send(request, 5)
    harness.wait_for_state("PrepareCommit" if committed else "PrepareAbort")
    after = killed()
    harness.release_markers()
    harness.answer(ending)
    after.wait_for_state("CompleteCommit" if committed else "CompleteAbort")
    seen = (after.values("t"), after.values("u"), after.committed_offset("u"))
    assert seen == (([b"a"], [b"b"], (0, 5)) if committed else ([], [], (0, -1)))
    # The producer has no answer and repeats its request.
    assert after.ask(request, 5).error_code == 0


def test_prepared_transaction_with_some_markers_is_completed_after_a_kill(harness, producer, killed):
    write_some(producer)
    harness.stick_markers()
    ending = harness.send(producer.end_request(committed=True), 5)
    harness.wait_for_state("PrepareCommit")
    marked = harness.broker.topics.get("t").partition(0)
    harness.broker.transaction_markers.append(_marker_of(harness), ("t", 0), lambda _error: None)
    assert marked.last_stable_offset == 2
    after = killed()
    harness.release_markers()
    harness.answer(ending)
    after.wait_for_state("CompleteCommit")
    assert (after.values("t"), after.values("u")) == ([b"a"], [b"b"])


def _marker_of(harness):
    from klamm_broker.transactions.markers import Marker

    record = harness.broker.transactions.registry.get(ID).record
    return Marker(record.producer_id, record.producer_epoch, True)


@pytest.mark.parametrize("committed", [False, True])
def test_complete_transaction_stays_complete_after_a_kill(harness, producer, killed, committed):
    write_some(producer)
    request = producer.end_request(committed=committed)
    assert producer.end(committed=committed) == 0
    after = killed()
    assert after.state() == ("CompleteCommit" if committed else "CompleteAbort")
    assert after.values("t") == ([b"a"] if committed else [])
    assert after.ask(request, 5).error_code == 0
    assert take_over(producer, after).produce("t", b"c").error_code == 0
    assert producer.end(committed=True) == 0
    assert after.values("t")[-1:] == [b"c"]


class HeldStore(Store):
    """A store that commits nothing while it is held."""

    def hold(self):
        self._connection_lock.acquire()

    def release(self):
        self._connection_lock.release()


class HeldHarness(TransactionsHarness):
    def make_broker(self, settings):
        return Broker(settings, make_store=lambda path, sync: HeldStore(path, sync_submitted=sync))


@pytest.fixture
def held(tmp_path):
    harness = HeldHarness(tmp_path / "data")
    harness.data_dir.mkdir()
    harness.open()
    harness.create_topic("t", 2)
    harness.create_topic("u")
    yield harness
    harness.broker.close()


def pending_in(harness):
    return harness.broker.transactions.registry.get(ID).pending


def test_epoch_fence_and_abort_are_one_write(held, tmp_path):
    """Until this write is durable, the transaction is open on the disk. After a crash, its producer continues."""
    producer = Producer(held)
    producer.init()
    write_some(producer)
    held.broker.store.hold()
    fencing = held.send(_init_request(), 5)
    assert pending_in(held).value == "PrepareAbort"
    copy = tmp_path / "copy"
    shutil.copytree(held.data_dir, copy)
    held.broker.store.release()
    assert held.answer(fencing).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    after = TransactionsHarness(copy)
    after.open()
    assert after.state() == "Ongoing"
    assert take_over(producer, after).end(committed=True) == 0
    assert after.values("t") == [b"a"]
    after.broker.close()


def test_expired_transaction_stays_until_its_removal_is_durable(held, tmp_path):
    """An expired id exists until its removal is durable."""
    producer = Producer(held)
    producer.init()
    held.settle()
    held.clock.advance_ms(604_800_000)
    held.broker.store.hold()
    held.broker.transactions.expire(held.clock.wall_ms())
    assert pending_in(held).value == "Dead"
    assert producer.produce("t", b"a").error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    copy = tmp_path / "copy"
    shutil.copytree(held.data_dir, copy)
    held.broker.store.release()
    held.settle()
    assert held.state() == str(int(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND))
    after = TransactionsHarness(copy)
    after.open()
    assert after.state() == "Empty"
    after.broker.close()


def _init_request():
    from klamm.wire.messages.init_producer_id import InitProducerIdRequest

    return InitProducerIdRequest(ID, 60_000)


# Written bytes


class CountingStore(Store):
    """A store that counts the written characters."""

    written = 0

    def transact(self, statements, *, sync):
        self.written += sum(len(repr(parameters)) for _sql, parameters in statements)
        super().transact(statements, sync=sync)


class CountingHarness(TransactionsHarness):
    def make_broker(self, settings):
        return Broker(settings, make_store=lambda path, sync: CountingStore(path, sync_submitted=sync))


def test_the_cost_of_a_partition_is_independent_of_their_number(tmp_path):
    harness = CountingHarness(tmp_path / "data")
    harness.data_dir.mkdir()
    harness.open()
    producer = Producer(harness)
    producer.init()

    def add(indexes):
        before = harness.broker.store.written
        for index in indexes:
            answers = []
            identity = ProducerIdAndEpoch(producer.id, producer.epoch)
            harness.broker.transactions.add_partitions(ID, identity, [("t", index)], 0, answers.append)
            wait_until(lambda answers=answers: answers == [ErrorCode.NONE])
        return harness.broker.store.written - before

    first = add(range(1000, 1100))
    assert add(range(1100, 1200)) < 1.5 * first
    harness.broker.close()


# Failed writes


class FailingStore(Store):
    """A store that refuses one kind of statement."""

    refuses = ""

    def transact(self, statements, *, sync):
        if self.refuses and any(self.refuses in repr(parameters) for _sql, parameters in statements):
            raise StoreError("the disk is full")
        super().transact(statements, sync=sync)


@pytest.fixture
def failing(tmp_path):
    class FailingHarness(TransactionsHarness):
        def make_broker(self, settings):
            return Broker(settings, make_store=lambda path, sync: FailingStore(path, sync_submitted=sync))

    harness = FailingHarness(tmp_path / "data")
    harness.data_dir.mkdir()
    harness.open()
    harness.create_topic("t")
    yield harness
    harness.broker.close()


@pytest.mark.parametrize("state", ["Empty", "Ongoing", "PrepareCommit"])
def test_a_transition_that_cannot_be_written_has_not_happened(failing, state):
    producer = Producer(failing)
    if state != "Empty":
        assert producer.init() == 0
    if state == "PrepareCommit":
        assert producer.add(("t", 0)) == [0]
        assert producer.produce("t", b"a", version=11).error_code == 0
    failing.broker.store.refuses = f"'{state}'"
    attempt = {
        "Empty": producer.init,
        "Ongoing": lambda: producer.add(("t", 0))[0],
        "PrepareCommit": lambda: producer.end(committed=True),
    }[state]
    assert attempt() == ErrorCode.NOT_COORDINATOR
    failing.broker.store.refuses = ""
    assert attempt() == 0


def commit_without_completion(failing):
    """Commit a record while the store refuses the completion."""
    producer = Producer(failing)
    producer.init()
    producer.produce("t", b"a")
    failing.broker.store.refuses = "'CompleteCommit'"
    assert producer.end(committed=True) == 0


def test_a_completion_that_cannot_be_written_is_tried_again(failing):
    commit_without_completion(failing)
    assert failing.state() == "PrepareCommit"
    failing.broker.store.refuses = ""

    def completed():
        failing.advance_ms(1000)
        return failing.state() == "CompleteCommit"

    wait_until(completed)
    assert failing.values("t") == [b"a"]


def test_completed_steps_of_an_end_are_not_repeated(failing):
    commit_without_completion(failing)
    end_offset = failing.latest("t", committed=False)
    for _ in range(3):
        failing.advance_ms(60_000)
        failing.broker.transaction_markers.close()
        failing.settle()
    assert failing.state() == "PrepareCommit"
    assert failing.latest("t", committed=False) == end_offset


@pytest.mark.interpreted
def test_a_marker_that_could_not_be_synced_is_synced_later(failing):
    producer = Producer(failing)
    producer.init()
    producer.produce("t", b"a")
    log = failing.broker.topics.get("t").partition(0).log
    tried = []

    def fails(_log, segment):
        tried.append(segment)
        raise OSError(errno.EMFILE, "Too many open files")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(log), "_sync_segment", fails)
        assert producer.end(committed=False) == 0
        assert (len(tried), failing.state()) == (1, "PrepareAbort")
        end_offset = failing.latest("t", committed=False)

    def completed():
        failing.advance_ms(1000)
        return failing.state() == "CompleteAbort"

    wait_until(completed)
    assert failing.latest("t", committed=False) == end_offset


def test_a_failed_end_is_tried_again_with_growing_intervals(failing, caplog):
    commit_without_completion(failing)
    caplog.clear()
    for _ in range(120):
        failing.advance_ms(1000)
        failing.settle()
    # The attempts follow after 1, 3, 7, 15, 31, 61 and 91 seconds.
    assert sum("cannot be written" in message for message in caplog.messages) == 7


# Power failures


class BootHarness(TransactionsHarness):
    """A broker on a machine that restarts."""

    boot_id = "first"

    def make_broker(self, settings):
        return Broker(settings, boot_id=lambda: self.boot_id)


@pytest.fixture
def machine(tmp_path):
    harness = BootHarness(tmp_path / "data")
    harness.data_dir.mkdir()
    harness.open()
    harness.create_topic("t")
    yield harness
    harness.broker.close()


@pytest.mark.parametrize(
    ("boot_id", "state"), [("first", "Ongoing"), ("second", "CompleteAbort"), ("", "CompleteAbort")]
)
def test_transactions_open_when_the_machine_stopped_are_aborted(machine, tmp_path, boot_id, state):
    producer = Producer(machine)
    producer.init()
    producer.produce("t", b"a")
    copy = tmp_path / "copy"
    shutil.copytree(machine.data_dir, copy)
    after = BootHarness(copy)
    after.boot_id = boot_id
    after.open()
    after.wait_for_state(state)
    end = take_over(producer, after).end(committed=True)
    assert end == (0 if boot_id == "first" else ErrorCode.INVALID_TXN_STATE)
    assert after.values("t") == ([b"a"] if boot_id == "first" else [])
    after.broker.close()


def test_transactions_open_at_a_clean_stop_continue_after_a_restart_of_the_machine(machine):
    producer = Producer(machine)
    producer.init()
    producer.produce("t", b"a")
    machine.boot_id = "second"
    machine.reopen()
    assert producer.end(committed=True) == 0
    assert machine.values("t") == [b"a"]


@pytest.mark.interpreted
def test_a_transaction_does_not_commit_if_its_records_cannot_be_synced(machine):
    producer = Producer(machine)
    producer.init()
    producer.produce("t", b"a")
    log = machine.broker.topics.get("t").partition(0).log
    with pytest.MonkeyPatch.context() as patch:

        def fails(_segment):
            raise OSError(5, "Input/output error")

        patch.setattr(type(log), "_sync_segment", lambda _log, segment: fails(segment))
        assert producer.end(committed=True) == ErrorCode.NOT_COORDINATOR
    assert machine.state() == "Ongoing"
    assert machine.values("t") == []
