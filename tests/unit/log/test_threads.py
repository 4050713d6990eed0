"""Readers take no lock: while other threads write, they read only published records."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from klamm import ErrorCode, KafkaError
from klamm.wire.records import NO_PRODUCER_ID, Record, batch_checksum, decode_records, encode_batch, iterate_batches
from klamm_broker.log.cleaner import Cleaner, dirty_range
from klamm_broker.log.files import FileRegion
from klamm_broker.log.partition_log import PartitionLog
from tests.unit.log.playbook import START_MS, LogPlaybook

OpenLog = Callable[..., LogPlaybook]
APPENDS = 600
KEYS = 50


class Threads:
    """Threads that stop when the writer has finished. The first failure of any thread is raised at the end."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.failures: list[Exception] = []
        self._threads: list[threading.Thread] = []

    def start(self, work: Callable[[], object]) -> None:
        def until_done() -> None:
            try:
                while not self.done.is_set():
                    work()
            except Exception as error:
                self.failures.append(error)

        thread = threading.Thread(target=until_done)
        self._threads.append(thread)
        thread.start()

    def finish(self) -> None:
        self.done.set()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()
        if self.failures:
            raise self.failures[0]


def write(log: PartitionLog) -> None:
    """Append batches of one to three records whose values are their offsets."""
    rng = random.Random(1)
    for _ in range(APPENDS):
        start = log.end_offset
        offsets = range(start, start + rng.randint(1, 3))
        records = [
            Record(timestamp_ms=START_MS + n, key=b"%d" % (n % KEYS), value=b"%d" % n + b"." * 40) for n in offsets
        ]
        assert log.append(encode_batch(records), now_ms=START_MS).base_offset == start


def check_read(log: PartitionLog, offset: int, max_bytes: int) -> int:
    """Read from an offset. Return the next offset, and the start of the log if it has lost this offset."""
    end_offset = log.end_offset
    try:
        found = log.read(offset, max_bytes, min_one_message=True)
    except KafkaError as error:
        if error.error_code is ErrorCode.OFFSET_OUT_OF_RANGE and offset < log.log_start_offset:
            return log.log_start_offset
        raise
    if not isinstance(found.records, FileRegion):
        assert offset >= end_offset
        return offset
    next_offset = offset
    for header, batch in iterate_batches(found.records.read_bytes()):
        assert header.crc == batch_checksum(batch)
        assert header.producer_id == NO_PRODUCER_ID
        assert header.last_offset >= next_offset
        for record in decode_records(batch):
            assert record.value == b"%d" % record.offset + b"." * 40
        next_offset = header.last_offset + 1
    found.records.close()
    assert offset < next_offset <= found.high_watermark
    return next_offset


def tail(log: PartitionLog) -> Callable[[], None]:
    """Read like a consumer that keeps up with the writer."""
    position = 0

    def step() -> None:
        nonlocal position
        position = check_read(log, position, 500)

    return step


def jump(log: PartitionLog, seed: int) -> Callable[[], None]:
    """Read like a consumer that seeks, by offset and by timestamp."""
    rng = random.Random(seed)

    def step() -> None:
        offset = rng.randint(log.log_start_offset, log.end_offset)
        check_read(log, offset, rng.choice([1, 300, 5000]))
        found = log.offset_for_timestamp(START_MS + offset)
        if found is not None:
            assert (found.timestamp_ms, found.offset) >= (START_MS + offset, offset)

    return step


def delete_old(playbook: LogPlaybook) -> Callable[[], None]:
    """Apply retention, and remove files at once."""

    def step() -> None:
        playbook.log.delete_old_segments(START_MS)
        playbook.context.deletions.run_due(START_MS)

    return step


def compact(playbook: LogPlaybook) -> Callable[[], None]:
    """Compact repeatedly, and remove files at once."""
    cleaner = Cleaner(playbook.context)
    checkpoint = 0

    def step() -> None:
        nonlocal checkpoint
        dirty = dirty_range(playbook.log, checkpoint, START_MS)
        if dirty.dirty_bytes:
            checkpoint = cleaner.clean(playbook.log, dirty, START_MS)
        playbook.context.deletions.run_due(START_MS)

    return step


@pytest.fixture(autouse=True)
def _threads_take_turns_often() -> Iterator[None]:
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(interval_s)


@pytest.mark.parametrize("cleanup_policy", ["delete", "compact"])
def test_readers_see_whole_records_while_other_threads_write(open_log: OpenLog, cleanup_policy: str) -> None:
    playbook = open_log(
        cleanup_policy=cleanup_policy,
        segment_bytes=4000,
        index_interval_bytes=300,
        retention_bytes=20_000,
        file_delete_delay_ms=0,
    )
    log = playbook.log
    threads = Threads()
    threads.start(tail(log))
    threads.start(jump(log, seed=2))
    threads.start({"delete": delete_old, "compact": compact}[cleanup_policy](playbook))
    threads.start(log.release_indexes)
    threads.start(lambda: log.flush(START_MS))

    try:
        write(log)
    finally:
        threads.finish()

    latest = {record.key: record.value for record in playbook.records()}
    assert latest[b"%d" % ((log.end_offset - 1) % KEYS)] == b"%d" % (log.end_offset - 1) + b"." * 40
    expected = playbook.records()
    assert list(playbook.reopen().segments) != []
    assert playbook.records() == expected
