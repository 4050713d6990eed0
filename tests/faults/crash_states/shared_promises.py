"""The checks of share groups after a crash: done records are not delivered again, and all others are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from klamm_broker.log.partition_log import PartitionLog
from tests.faults.crash_states.shared import DONE, ShareMember
from tests.faults.crash_states.view import View
from tests.faults.crash_states.workload import Incarnation, QuietHarness
from tests.unit.log.playbook import fetch_batches

SHARED = "records that a share group has acknowledged, released or rejected, `offsets.commit.fsync=false`, the default"
SYNCED_SHARED = "records that a share group has acknowledged, released or rejected, `offsets.commit.fsync=true`"
HELD = "records that a member of a share group holds"
_MANY_RECORDS = 1000

Logs = Mapping[tuple[Incarnation, int], PartitionLog]


class SharedPromises:
    """The checks of one broker that was opened after a crash. They run as a new member of the group."""

    def __init__(self, view: View, harness: QuietHarness, logs: Logs) -> None:
        self._view = view
        self._logs = logs
        self._member = ShareMember(harness, "checker")
        self._topics = {incarnation: harness.broker.topics.get(incarnation.name) for incarnation, _ in logs}
        # Without its config, the group begins at the end of the log.
        self._is_started = view.possible("share reset", None) == ["earliest"]

    def check(self) -> None:
        """Run all checks. Raises AssertionError."""
        if not self._is_started or not self._logs:
            return
        assert self._member.join(*{each.name for each in self._topics}).error_code == 0
        for place, log in self._logs.items():
            delivered = self._deliveries(place)
            for header in (header for batches in _all_batches(log) for header in batches):
                for offset in range(max(header.base_offset, log.log_start_offset), header.last_offset + 1):
                    self._check_record(place, offset, delivered.pop(offset, None))
            assert not delivered, f"records that are not in the log: {delivered}"

    def check_new(self, place: tuple[Incarnation, int], offset: int) -> None:
        """Check that a record that was produced after the crash is delivered once. Raises AssertionError."""
        if self._is_started:
            delivered = self._deliveries(place)
            assert delivered == {offset: 1}, f"{place[0].name}-{place[1]}: {delivered}, not the new record at {offset}"

    def _deliveries(self, place: tuple[Incarnation, int]) -> dict[int, int]:
        incarnation, partition = place
        found: dict[int, int] = {}
        while True:
            answer, more = self._member.fetch(self._topics[incarnation].id, partition, _MANY_RECORDS)
            assert answer.error_code == 0, f"{incarnation.name}-{partition}: error {answer.error_code}"
            assert not found.keys() & more.keys(), "a record is delivered to a member that holds it"
            if not more:
                return found
            found |= more

    def _check_record(self, place: tuple[Incarnation, int], offset: int, delivery_count: int | None) -> None:
        key = (*place, offset)
        is_synced = bool(self._view.work.settings.get("offsets_commit_fsync"))
        possible = self._view.possible("share", key)
        before: list[Any] = [event.value for event in self._view.of("delivered", key)]
        if self._view.power_cut and not is_synced:
            possible = [None, *(event.value for event in self._view.of("share", key))]
        where = f"{place[0].name}-{place[1]}, offset {offset}"
        if delivery_count is None:
            # The group continues after records that were to be deleted, although the log may have them again.
            wanted_start = max((event.value for event in self._view.of("start", place)), default=0)
            assert DONE in possible or offset < wanted_start, f"{where} is not delivered, and is {possible}"
        else:
            counts = [each or 0 for each in possible if each != DONE]
            assert counts, f"{where} is delivered again"
            limits = min(counts) + 1, len(before) + 1
            assert limits[0] <= delivery_count <= limits[1], f"{where}: delivery {delivery_count}, not within {limits}"
        self._view.held[SYNCED_SHARED if is_synced else SHARED] += bool(self._view.possible("share", key)[0])
        self._view.held[HELD] += bool(before) and self._view.possible("share", key)[0] != DONE


def _all_batches(log: PartitionLog) -> Any:
    offset = log.log_start_offset
    while batches := fetch_batches(log, offset):
        yield [header for header, _batch in batches]
        offset = batches[-1][0].last_offset + 1
