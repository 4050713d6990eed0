"""Kafka's own `DumpLogSegments` reads the files of a log and finds no error."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from klamm.wire.compression import Codec
from klamm.wire.records import Record, encode_batch
from tests.peers.kafka_jars import classpath
from tests.unit.log.playbook import START_MS, LogPlaybook
from tests.unit.log.test_compaction import clean
from tests.unit.log.test_transactions import Producer

pytestmark = pytest.mark.interop

OpenLog = Callable[..., LogPlaybook]


def dump(files: list[Path], *options: str) -> str:
    """Return the output of the tool."""
    names = ",".join(map(str, files))
    command = [
        "java",
        "-Xmx256m",
        "-cp",
        classpath(),
        "org.apache.kafka.tools.DumpLogSegments",
        *options,
        "--files",
        names,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def busy_log(open_log: OpenLog) -> LogPlaybook:
    """Return a log of several segments with all codecs, producers, transactions, tombstones, and a compacted part."""
    playbook = open_log(
        segment_bytes=2000, index_interval_bytes=200, cleanup_policy="compact", delete_retention_ms=1000
    )
    first, second = Producer(playbook, 1), Producer(playbook, 2)
    for number in range(60):
        playbook.clock.advance_ms(3)
        codec = Codec(number % len(Codec))
        records = [
            Record(timestamp_ms=playbook.clock.wall_ms(), key=b"key-%d" % (each % 5), value=b"value-%d" % number)
            for each in range(4)
        ]
        playbook.log.append(encode_batch(records, codec=codec), now_ms=playbook.clock.wall_ms())
        if number % 10 == 4:
            playbook.append_keyed((b"key-1", None))
            first.send(b"aborted-%d" % number)
            second.send(b"committed-%d" % number)
            first.abort()
            second.commit()
        if number == 40:
            clean(playbook, now_ms=playbook.clock.wall_ms())
    playbook.log.close(START_MS)
    return playbook


def test_every_file_is_read_without_errors(busy_log: LogPlaybook) -> None:
    logs = sorted(busy_log.directory.glob("*.log"))
    indexes = [path for kind in ("index", "timeindex", "txnindex") for path in busy_log.directory.glob(f"*.{kind}")]
    snapshots = sorted(busy_log.directory.glob("*.snapshot"))
    assert len(logs) > 3
    assert any(path.stat().st_size for path in indexes)

    printed = dump([*logs, *indexes, *snapshots], "--deep-iteration", "--print-data-log")
    busy_log.open(is_clean=True)

    for complaint in ("Mismatches", "Invalid", "isvalid: false", "rror", "bytes extra", "mismatch"):
        assert complaint not in printed, printed[printed.index(complaint) - 500 :][:1000]
    offsets = [int(each) for each in re.findall(r"^\| offset: (\d+)", printed, re.MULTILINE)]
    assert sorted(offsets) == [record.offset for record in busy_log.records()]
    assert "compresscodec: zstd" in printed
    assert re.search(r"producerId: 1 producerEpoch: 0 .* firstSequence: 5 lastSequence: 5 ", printed)
    assert "endTxnMarker: ABORT" in printed
    assert re.search(r"version: 0 producerId: 1 firstOffset: \d+ lastOffset: \d+ lastStableOffset: \d+", printed)


def test_index_sanity_check_passes(busy_log: LogPlaybook) -> None:
    indexes = [path for kind in ("index", "timeindex") for path in sorted(busy_log.directory.glob(f"*.{kind}"))]

    printed = dump(indexes, "--index-sanity-check")

    assert len(re.findall(r"(passed sanity check|is empty)\.$", printed, re.MULTILINE)) == len(indexes)
    assert printed.count("passed sanity check.") > len(indexes) / 2
