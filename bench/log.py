"""The log alone, without a network: `python -m bench.log [--rounds 15] [--data-dir DIR]`.

Each row has the time of one call in microseconds: the median over the rounds, and beside it the smallest and the
largest round. A memory file system as `--data-dir` shows the log's own time; a disk shows the time that users see.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from klamm.runtime import SystemClock
from klamm.wire.compression import Codec
from klamm.wire.records import Record, encode_batch, read_header
from klamm_broker.log.config import LogConfig
from klamm_broker.log.files import FileRegion
from klamm_broker.log.manager import LogManager
from klamm_broker.log.partition_log import PartitionLog
from klamm_broker.log.record_check import check_records

TOPIC_ID: Final = bytes(16)
WARM_UP_CALLS: Final = 20
PARTITIONS: Final = 100

Work = Callable[[], object]
"""One call of the measured function."""


def batch_of(size_bytes: int) -> bytes:
    """Return one batch of records of 1 KiB, or of one smaller record."""
    record_bytes = min(size_bytes, 1024)
    return bytes(encode_batch([Record(value=b"v" * record_bytes) for _ in range(size_bytes // record_bytes)]))


class Bench:
    """Logs on one data directory, one for each topic. `tidy` removes dropped segments between rounds."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = SystemClock()
        self.manager = self._open()

    def _open(self) -> LogManager:
        manager = LogManager(self.directory, clock=self.clock)
        manager.open()
        return manager

    def log(self, topic: str, **configs: str) -> PartitionLog:
        names = {name.replace("_", "."): value for name, value in configs.items()}
        return self.manager.get_or_create(topic, 0, TOPIC_ID, LogConfig(names))

    def tidy(self) -> None:
        """Delete the segments that the last round wrote."""
        now_ms = self.clock.wall_ms()
        self.manager.delete_old_segments(now_ms)
        self.manager.checkpoint(now_ms + 1)

    def appends(self, name: str, size_bytes: int, **fields: str) -> Work:
        """Append one batch after the other, from a buffer like the network layer's."""
        log = self.log(name, max_message_bytes=str(2 * size_bytes + 1024), **fields)
        batch = bytearray(batch_of(size_bytes))

        def append() -> None:
            # The log wrote its base offset into the buffer: set it back.
            batch[0:8] = bytes(8)
            log.append(batch, now_ms=self.clock.wall_ms())

        return append

    def idempotent_appends(self) -> Work:
        """Append batches of a producer with sequence numbers."""
        log = self.log("idempotent", retention_bytes="0", file_delete_delay_ms="0")
        sequences = iter(range(2**31))
        value = Record(value=b"v" * 1024)
        batches = [encode_batch([value], producer_id=1, producer_epoch=0, base_sequence=n) for n in range(60_000)]

        def append() -> None:
            log.append(batches[next(sequences)], now_ms=self.clock.wall_ms())

        return append

    def filled(self, name: str, batches: int) -> PartitionLog:
        """Return a log of batches of 1 KiB in segments of 4 MiB."""
        log = self.log(name, segment_bytes=str(4 << 20))
        for _ in range(batches):
            log.append(batch_of(1024), now_ms=self.clock.wall_ms())
        return log

    def tail_reads(self) -> Work:
        """Read the last batch, like a consumer that keeps up."""
        log = self.filled("tail", 1000)
        return lambda: _read(log, log.end_offset - 1)

    def old_reads(self) -> Work:
        """Read 1 MiB from an old position, which needs the index and a scan."""
        log = self.filled("old", 20_000)
        offsets = _spread(log.end_offset)
        return lambda: _read(log, next(offsets))

    def end_reads(self) -> Work:
        """Read at the end, where no record is."""
        log = self.filled("end", 10)
        return lambda: log.read(log.end_offset, 1 << 20)

    def timestamp_lookups(self) -> Work:
        """Find the offset of a timestamp."""
        log = self.log("times")
        start_ms = self.clock.wall_ms() - 20_000
        for number in range(20_000):
            log.append(encode_batch([Record(timestamp_ms=start_ms + number, value=b"v" * 1024)]), now_ms=start_ms)
        numbers = _spread(20_000)
        return lambda: log.offset_for_timestamp(start_ms + next(numbers))

    def opening(self, *, is_clean: bool) -> Work:
        """Open a directory of 100 partitions that have 1 MiB each, after a stop or after a kill."""
        data_dir = self.directory / ("stopped" if is_clean else "killed")
        batch = batch_of(1 << 20)
        config = LogConfig({"max.message.bytes": str(2 << 20)})

        def opened() -> LogManager:
            manager = LogManager(data_dir, clock=self.clock)
            manager.open()
            for partition in range(PARTITIONS):
                manager.get_or_create("many", partition, TOPIC_ID, config)
            return manager

        manager = opened()
        for log in manager.logs():
            log.append(batch, now_ms=self.clock.wall_ms())
        manager.close()
        marker = data_dir / ".kafka_cleanshutdown"
        points = data_dir / "recovery-point-offset-checkpoint"
        content = marker.read_bytes(), points.read_bytes()

        def open_all() -> float:
            if is_clean:
                marker.write_bytes(content[0])
                points.write_bytes(content[1])
            else:
                marker.unlink(missing_ok=True)
                points.unlink(missing_ok=True)
            started = time.perf_counter()
            manager = opened()
            taken_s = time.perf_counter() - started
            manager.close()
            return taken_s

        return open_all


def checks(size_bytes: int, *, codec: Codec = Codec.NONE, is_regular: bool = True) -> Work:
    """Check the records of one batch: texts of 1 KiB each, or with `is_regular=False` of 64 bytes to 2 KiB."""
    count = size_bytes // 1024
    texts = [(f"record {number} has some text. " * 90).encode() for number in range(count)]
    lengths = [1024 if is_regular else 64 + number * 613 % 1920 for number in range(count)]
    batch = encode_batch(
        [Record(value=text[:length]) for text, length in zip(texts, lengths, strict=True)], codec=codec
    )
    header = read_header(batch)
    return lambda: check_records(batch, header)


def _read(log: PartitionLog, offset: int) -> None:
    records = log.read(offset, 1 << 20, min_one_message=True).records
    assert isinstance(records, FileRegion)
    records.close()


def _spread(count: int) -> Iterator[int]:
    """Yield numbers below `count` for ever, each far from the one before."""
    number = 0
    while True:
        yield number
        number = (number + 7_919) % count


def mean_us(work: Work, calls: int) -> float:
    """Return the mean time of one call. Work that returns seconds has measured itself."""
    started = time.perf_counter()
    measured_s = 0.0
    for _ in range(calls):
        taken = work()
        measured_s += taken if isinstance(taken, float) else 0.0
    return (measured_s or time.perf_counter() - started) / calls * 1e6


def row(name: str, work: Work, calls: int, rounds: int, between: Callable[[], None]) -> str:
    """Measure, and return one line of the table."""
    for _ in range(min(WARM_UP_CALLS, calls)):
        work()
    means = []
    for _ in range(rounds):
        means.append(mean_us(work, calls))
        between()
    return f"| {name} | {median(means):,.1f} | {min(means):,.1f}–{max(means):,.1f} |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.log", description="The log alone")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="part of the names of what is measured")
    parser.add_argument("--data-dir", type=Path, help="where the logs are made; default: the temporary directory")
    chosen = parser.parse_args(arguments)
    dropped = {"retention_bytes": "0", "file_delete_delay_ms": "0"}
    with tempfile.TemporaryDirectory(prefix="klamm-bench-log-", dir=chosen.data_dir) as directory:
        bench = Bench(Path(directory))
        measured: list[tuple[str, Callable[[], Work], int]] = [
            ("append, 1 KiB", lambda: bench.appends("small", 1024, **dropped), 2000),
            ("append, 1 KiB, idempotent producer", bench.idempotent_appends, 2000),
            ("append, 64 KiB", lambda: bench.appends("middle", 64 << 10, **dropped), 300),
            ("append, 1 MiB", lambda: bench.appends("large", 1 << 20, **dropped), 40),
            ("read at the tail", bench.tail_reads, 5000),
            ("read at the end, nothing there", bench.end_reads, 5000),
            ("read of 1 MiB in the past", bench.old_reads, 1000),
            ("offset of a timestamp", bench.timestamp_lookups, 300),
            (f"open {PARTITIONS} partitions after a stop", lambda: bench.opening(is_clean=True), 1),
            (f"open {PARTITIONS} partitions of 1 MiB after a kill", lambda: bench.opening(is_clean=False), 1),
        ]
        for size_kib, calls in ((16, 2000), (64, 500), (1000, 50)):
            measured.append((f"check records, {size_kib} KiB", partial(checks, size_kib << 10), calls))
            name = f"check records of many lengths, {size_kib} KiB"
            measured.append((name, partial(checks, size_kib << 10, is_regular=False), calls))
        for codec in list(Codec)[1:]:
            name = f"check records, 16 KiB in {codec.name.lower()}"
            measured.append((name, partial(checks, 16 << 10, codec=codec), 500))
        print("| | µs | range |\n| --- | --- | --- |", flush=True)
        for name, prepare, calls in (each for each in measured if chosen.only in each[0]):
            print(row(name, prepare(), calls, chosen.rounds, bench.tidy), flush=True)
        bench.manager.close()


if __name__ == "__main__":
    main()
