"""Tests of spool and lake in S3: the commands run as processes, and moto is the server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.audit_samples import sample_events, write_sample_spool
from tests.peers.s3_server import S3, s3_server
from tests.spark.test_cluster import environment
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

BUCKET = "company-audit"
EVENTS = 600
SEGMENT = 150
DEADLINE_S = 120
KEYS = {
    "AWS_ACCESS_KEY_ID": "someone",
    "AWS_SECRET_ACCESS_KEY": "not a secret",
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}
WHOLE = "every event that was sealed is in the lake exactly once, as it was written"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with s3_server(tmp_path_factory.mktemp("s3"), BUCKET) as server:
        yield server


class Trail:
    """A spool that is copied to S3, a lake in the same bucket, and calls of `klamm audit` with both."""

    def __init__(self, s3: S3, name: str, folder: Path) -> None:
        self.s3, self.name, self.spool = s3, name, folder / "spool"
        self.file = folder / "klamm.toml"
        uri = f"s3://{s3.bucket}/{name}"
        lines = ["[audit.spark]", f'spool = "{uri}/spool"', f'lake = "{uri}/lake"', "max_files_per_trigger = 1"]
        self.file.write_text("\n".join([*lines, 'master = "none"']))

    def write(self, count: int, first_seq: int = 0) -> None:
        """Write events to the spool, and copy it to S3 as `aws s3 sync` does: seals first."""
        write_sample_spool(self.spool, sample_events(count, first_seq=first_seq), events_per_segment=SEGMENT)
        files = [path for path in self.spool.rglob("*") if path.is_file()]
        for path in sorted(files, key=lambda path: (path.suffix != ".seal", path)):
            self.s3.put(f"{self.name}/spool/{path.relative_to(self.spool).as_posix()}", path.read_bytes())

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command in its own process group."""
        command = [sys.executable, "-m", "klamm", "audit", *arguments]
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=environment() | KEYS | {"AWS_ENDPOINT_URL": self.s3.endpoint},
        )

    def audit(self, *arguments: str, code: int = 0) -> tuple[list[str], str]:
        """Run a command that must end with this code. Return its output, and what it printed meanwhile."""
        process = self.start(arguments[0], str(self.file), *arguments[1:])
        try:
            printed, said = process.communicate(timeout=DEADLINE_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == code, printed + said
        return printed.splitlines(), said

    def ship(self) -> str:
        return self.audit("ship", "--once")[1]

    def of_lake(self, path: str, beginning: str) -> list[str]:
        """Return the keys of the lake's files in a folder whose names begin with a prefix."""
        keys = self.s3.keys(f"{self.name}/lake/{path}/")
        return [key for key in keys if key.rpartition("/")[2].startswith(beginning)]


def seqs(trail: Trail) -> list[int]:
    """Return the sequence numbers in all data files, read without klamm."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    files = trail.of_lake("events", "part-")
    tables = [parquet.read_table(arrow.BufferReader(trail.s3.get(key)), columns=["seq"]) for key in files]
    return sorted(seq for table in tables for seq in table["seq"].to_pylist())


def test_a_lake_in_s3_has_each_event_once(s3: S3, tmp_path: Path) -> None:
    trail = Trail(s3, "trail-once", tmp_path)
    trail.write(EVENTS - SEGMENT)
    assert "shipped 450 events in 3 batches" in trail.ship()
    assert "shipped 0 events" in trail.ship(), "nothing is repeated"
    trail.write(SEGMENT, first_seq=EVENTS - SEGMENT)
    assert "shipped 150 events in 1 batches" in trail.ship()
    assert seqs(trail) == list(range(EVENTS))
    said, _ = trail.audit("verify")
    assert any("spool 600 events (0-599), lake 600 events (0-599)" in line for line in said)
    assert said[-1] == WHOLE

    found, _ = trail.audit("detect")
    assert any("The trail has gaps" in line for line in found)
    # The spool on the disk has the same events.
    local = subprocess.run(
        [sys.executable, "-m", "klamm", "audit", "detect", "--spool", str(trail.spool)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env=environment(),
        check=True,
    )
    assert sorted(found) == sorted(local.stdout.splitlines())


def test_a_report_is_written_and_changed_objects_are_named(s3: S3, tmp_path: Path) -> None:
    trail = Trail(s3, "trail-changed", tmp_path)
    trail.write(EVENTS)
    trail.ship()
    report, _ = trail.audit("report")
    assert any(re.match(rf"events +{EVENTS} ", line) for line in report)
    (key, *_) = [key for key in s3.keys(f"{trail.name}/spool/") if key.endswith(".jsonl")]
    s3.put(key, s3.get(key).replace(b"orders-1", b"orders-2"))
    changed = f"broken chain: s3://{BUCKET}/{key} was changed: its SHA-256 differs from its seal"
    assert changed in trail.audit("verify", code=1)[0]


def test_a_driver_that_is_killed_loses_and_repeats_nothing(s3: S3, tmp_path: Path) -> None:
    trail = Trail(s3, "trail-killed", tmp_path)
    trail.write(EVENTS)
    driver = trail.start("ship", str(trail.file), "--once")
    try:
        # The first batch is committed, and a file of the second batch exists.
        wait_until(lambda: driver.poll() is not None or len(trail.of_lake("events", "part-")) > 1, within_s=DEADLINE_S)
        ended = driver.poll()
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        _, errors = driver.communicate()
    assert ended is None, errors
    committed = [key for key in trail.of_lake("events/_delta_log", "0") if key.endswith(".json")]
    # The first commit has created the table.
    appended = len(committed) - 1
    assert 1 <= appended < EVENTS // SEGMENT
    rest = EVENTS - SEGMENT * appended
    assert f"shipped {rest} events" in trail.ship()
    said, _ = trail.audit("verify")
    assert WHOLE in said
