"""`klamm audit detect --follow` finds the same in a lake as in its spool, and each finding once."""

import json
import time
from itertools import count

import pytest

from klamm_spark.errors import LakeError
from klamm_spark.findings.detections import Rules, own_detections
from klamm_spark.findings.log import FindingLog
from klamm_spark.findings.outputs import Deliveries
from klamm_spark.findings.watch import LakeWatch, SpoolWatch
from klamm_spark.lake.layout import Lake
from klamm_spark.storage.files import SpoolFiles
from tests.audit_samples import write_sample_spool
from tests.spark.conftest import settings_of
from tests.unit.audit.test_detections import BOOT, CASES, DAY, failures, login

WINDOW_US = 2 * 3600 * 1_000_000
ATTACKS = {name: fires[0] for name, (fires, _) in CASES.items() if name != "unusual_hours"}
"""This account logs in at unusual hours. In the other cases it logs in at all hours."""
LATER_FINDINGS = {"brute_force", "password_spraying", "success_after_failures"}
OF_LATER = Rules([one for one in own_detections() if one.name in LATER_FINDINGS])
LATER = [*failures(6, address="10.9.9.9", names="uvwxyz", start_s=90 * DAY), login(90 * DAY + 61, "10.9.9.9", "User:z")]


class Server:
    """Writes events to a spool in order of their times.

    No two events have the same time, because query engines could choose either as the first.
    """

    def __init__(self, spool):
        self._spool = spool
        self._seqs = count()

    def write(self, events):
        numbered = []
        for event in sorted(events, key=lambda one: one["time_us"]):
            seq = next(self._seqs)
            ids = {"seq": seq, "event_id": f"n/{BOOT}/{seq}", "time_us": event["time_us"] + seq}
            numbered.append({**event, **ids})
        write_sample_spool(self._spool, numbered)


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path / "lake")


@pytest.fixture
def follow(lake, tmp_path):
    """Return `follow(files)`, which starts a watch of the lake like a new process. The watch before it has ended."""
    running = []

    def start(files=None, rules=None):
        if running:
            running.pop().close()
        log = FindingLog(tmp_path / "of-lake", WINDOW_US, files)
        running.append(log)
        return LakeWatch(lake, log, Deliveries(log, [], print), list, window_us=WINDOW_US, rules=rules)

    yield start
    if running:
        running.pop().close()


def findings(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def uids(path):
    return sorted(one["metadata"]["uid"] for one in findings(path))


def test_a_lake_has_the_findings_of_its_spool(ship, lake, follow, tmp_path):
    spool, settings = tmp_path / "spool", settings_of(lake.root)
    server = Server(spool)
    server.write([event for events in ATTACKS.values() for event in events])
    log = FindingLog(tmp_path / "of-spool", WINDOW_US)
    on_spool = SpoolWatch(spool, log, Deliveries(log, [], print), list, window_us=WINDOW_US, wall_us=lambda: 0)
    on_spool.step()
    ship(spool, settings)
    follow().step()
    assert uids(tmp_path / "of-lake") == uids(tmp_path / "of-spool")
    assert {one["metadata"]["event_code"] for one in findings(tmp_path / "of-lake")} == set(ATTACKS)

    known = len(uids(tmp_path / "of-lake"))
    server.write(LATER)
    on_spool.step()
    ship(spool, settings)
    follow(rules=OF_LATER).step()
    assert uids(tmp_path / "of-lake") == uids(tmp_path / "of-spool")
    new = {one["metadata"]["event_code"] for one in findings(tmp_path / "of-lake")[known:]}
    assert new == LATER_FINDINGS
    on_spool.close()
    log.close()


class FullDisk(SpoolFiles):
    """A disk without space for the first write."""

    is_full = True

    def write(self, descriptor, data):
        if self.is_full:
            self.is_full = False
            raise OSError(28, "No space left on device")
        return super().write(descriptor, data)


def test_a_killed_process_loses_and_repeats_nothing(ship, lake, follow, tmp_path):
    Server(tmp_path / "spool").write(LATER)
    ship(tmp_path / "spool", settings_of(lake.root))
    watch = follow(FullDisk(), OF_LATER)
    with pytest.raises(OSError, match="No space left"):
        watch.step()
    assert uids(tmp_path / "of-lake") == []
    watch.step()
    found = (tmp_path / "of-lake").read_bytes()
    assert len(found.splitlines()) == 3
    # A process that is killed after it wrote findings has not recorded how far it had read the lake.
    (tmp_path / "of-lake.state").unlink()
    follow(rules=OF_LATER).step()
    assert (tmp_path / "of-lake").read_bytes() == found


def test_a_file_that_was_committed_after_its_time_is_new_after_a_start(ship, lake, follow, tmp_path):
    """Its time is earlier than its commit, and another process may have read the lake in between."""
    Server(tmp_path / "spool").write(LATER)
    ship(tmp_path / "spool", settings_of(lake.root))
    # Another process has not read the file, but has recorded a later time than the time of the file.
    log = FindingLog(tmp_path / "of-lake", WINDOW_US)
    log.record([], time.time_ns() // 1000 + 1_000_000)
    log.close()
    follow(rules=OF_LATER).step()
    assert {one["metadata"]["event_code"] for one in findings(tmp_path / "of-lake")} == LATER_FINDINGS


def test_a_watch_without_a_lake_is_an_error(follow):
    with pytest.raises(LakeError, match="nothing was shipped"):
        follow()
