"""Compares a log with a list: appends, rolls, reads, truncations, restarts, and crashes that cut the tail anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from klamm import ErrorCode, KafkaError
from klamm.wire.compression import Codec
from klamm.wire.records import HEADER_BYTES, Record, decode_records, encode_batch, iterate_batches
from klamm_broker.log.files import FileRegion
from tests.unit.log.playbook import START_MS, LogPlaybook

VALUES = st.lists(st.binary(max_size=40), min_size=1, max_size=4)


class LogMachine(RuleBasedStateMachine):
    """Random operations on a log. `batches` is its expected content: first offset and values of each batch."""

    root: Path

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[tuple[int, list[bytes]]] = []
        self.start_offset = 0

    @initialize(segment_bytes=st.integers(240, 900), index_interval_bytes=st.sampled_from([0, 200, 4096]))
    def open(self, segment_bytes: int, index_interval_bytes: int) -> None:
        number = len(list(self.root.iterdir()))
        self.playbook = LogPlaybook(
            self.root / f"topic-{number}", segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes
        )

    @property
    def end_offset(self) -> int:
        return self.batches[-1][0] + len(self.batches[-1][1]) if self.batches else self.start_offset

    @rule(values=VALUES, codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4]))
    def append(self, values: list[bytes], codec: Codec) -> None:
        batch = encode_batch([Record(timestamp_ms=START_MS, value=value) for value in values], codec=codec)
        offset = self.playbook.log.append(batch, now_ms=START_MS).base_offset
        assert offset == self.end_offset
        self.batches.append((offset, values))

    @rule(values=VALUES, free_bytes=st.integers(0, 60))
    def append_to_a_full_disk(self, values: list[bytes], free_bytes: int) -> None:
        self.playbook.disk.free_bytes = free_bytes
        with pytest.raises(KafkaError) as error:
            self.playbook.append(*values)
        assert error.value.error_code is ErrorCode.KAFKA_STORAGE_ERROR
        self.playbook.disk.free_bytes = None

    @rule()
    def roll(self) -> None:
        self.playbook.log.roll(START_MS)

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        offset = self.start_offset + int(share * (self.end_offset - self.start_offset))
        self.playbook.log.truncate_to(offset)
        self.batches = [batch for batch in self.batches if batch[0] + len(batch[1]) <= offset]
        self._check_end()

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = self.start_offset + int(share * (self.end_offset - self.start_offset))
        self.playbook.log.delete_records(offset)
        end_offset = self.end_offset
        self.start_offset = offset
        self.batches = [batch for batch in self.batches if batch[0] + len(batch[1]) > offset]
        self.playbook.log.delete_old_segments(START_MS)
        assert self.end_offset == end_offset

    @rule()
    def reopen(self) -> None:
        self.playbook.reopen()

    @rule()
    def kill(self) -> None:
        self.playbook.crash()

    @precondition(lambda self: self.batches)
    @rule(share=st.floats(0, 1, exclude_max=True))
    def kill_with_a_torn_tail(self, share: float) -> None:
        path = self.playbook.log.segments[-1].file.path
        data = path.read_bytes()
        if not data:
            return
        *_whole, (header, last) = iterate_batches(data)
        path.write_bytes(data[: len(data) - len(last) + int(share * len(last))])
        self.playbook.crash()
        if header.base_offset >= self.start_offset:
            self.batches.pop()
        else:
            self.batches = []
            self.start_offset = self.playbook.log.log_start_offset
        self._check_end()

    @precondition(lambda self: self.batches)
    @rule(share=st.floats(0, 1), max_bytes=st.integers(1, 500), whole=st.booleans())
    def read(self, share: float, max_bytes: int, whole: bool) -> None:
        offset = self.start_offset + int(share * (self.end_offset - self.start_offset))
        found = self.playbook.log.read(offset, max_bytes, min_one_message=whole)
        assert (found.high_watermark, found.log_start_offset) == (self.end_offset, self.start_offset)
        if offset == self.end_offset:
            assert found.records == b""
            return
        if not isinstance(found.records, FileRegion):
            assert not whole
            assert max_bytes < HEADER_BYTES + 500
            return
        data = found.records.read_bytes()
        assert len(data) <= max_bytes or len(list(iterate_batches(data))) == 1
        header, batch = next(iterate_batches(data))
        assert header.base_offset <= offset <= header.last_offset
        assert (header.base_offset, [record.value for record in decode_records(batch)]) in self.batches

    @invariant()
    def all_is_there(self) -> None:
        if not hasattr(self, "playbook"):
            return
        expected = [
            (offset + index, value)
            for offset, values in self.batches
            for index, value in enumerate(values)
            if offset + index >= self.start_offset
        ]
        assert [(record.offset, record.value) for record in self.playbook.records()] == expected

    def _check_end(self) -> None:
        assert self.playbook.log.end_offset == self.end_offset

    def teardown(self) -> None:
        if hasattr(self, "playbook"):
            self.playbook.log.close_files()


def test_a_log_equals_a_list(tmp_path: Path) -> None:
    machine = type("Machine", (LogMachine,), {"root": tmp_path})
    case = machine.TestCase
    case.settings = settings(max_examples=150, stateful_step_count=30, suppress_health_check=list(HealthCheck))
    case().runTest()
