"""The promises after a crash, i.e. the table of `docs/durability.md`, as checks of a broker that was opened."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

from klamm.wire.records import RecordBatchHeader, decode_records, iterate_batches
from klamm_broker.log.file_operations import FileOperations
from klamm_broker.log.partition_log import PartitionLog
from tests.faults.crash_states.coordinated_promises import (
    COMMITTED,
    EPOCHS,
    FEATURES,
    MEMBERS,
    NOT_COMMITTED,
    OPEN,
    CoordinatedPromises,
)
from tests.faults.crash_states.shared_promises import HELD, SHARED, SYNCED_SHARED, SharedPromises
from tests.faults.crash_states.view import View
from tests.faults.crash_states.workload import (
    CONSUMER_GROUP,
    DEFAULT_BROKERS,
    GROUP,
    Incarnation,
    QuietHarness,
    Workload,
)
from tests.unit.log.playbook import fetch_batches

Batches: TypeAlias = Iterable[tuple[RecordBatchHeader, memoryview]]

TOPICS = "topics, their ids and partitions"
CONFIGS = "configs of topics, of groups and of the broker"
ROWS = "ACLs, SCRAM credentials, quotas, delegation tokens"
IDS = "cluster id, producer ids: none is issued twice"
DELETED_RECORDS = "DeleteRecords: deleted records stay deleted"
DELETED_TOPICS = "DeleteTopics: a topic of the same name starts empty"
RECORDS = "records"
FLUSHED_RECORDS = "records of a topic with `flush.messages=1`"
ROLLED_RECORDS = "records before the last rolled segment, once that is synced"
OFFSETS = "committed offsets, `offsets.commit.fsync=false`, the default"
SYNCED_OFFSETS = "committed offsets, `offsets.commit.fsync=true`"
ROWS_OF_RECORDS = (
    TOPICS,
    CONFIGS,
    ROWS,
    IDS,
    DELETED_RECORDS,
    DELETED_TOPICS,
    RECORDS,
    FLUSHED_RECORDS,
    ROLLED_RECORDS,
    OFFSETS,
    SYNCED_OFFSETS,
)
ROWS_OF_COORDINATORS = (COMMITTED, NOT_COMMITTED, OPEN, EPOCHS, MEMBERS, FEATURES)
ROWS_OF_SHARE_GROUPS = (SHARED, SYNCED_SHARED, HELD)
"""All promises: one for each line of the table in `docs/durability.md`."""


class UnsyncedDisk(FileOperations):
    """The file operations of a broker that needs no syncs, because its power is not cut."""

    __slots__ = ()

    @staticmethod
    def fsync(_descriptor: int) -> None:  # type: ignore[override]
        """Do nothing, because no data must survive."""


class Promises:
    """The data that must and that may exist after a crash before one operation of a recording."""

    def __init__(self, work: Workload, index: int, *, power_cut: bool) -> None:
        self._work = work
        self._view = View(work, index, power_cut=power_cut)
        self.held = self._view.held
        """For each promise, the number of checked items."""

    # Checks

    def check(self, directory: Path) -> None:
        """Open the directory twice, and check the promises. Raises AssertionError, and the errors of a start."""
        boot = "next boot" if self._view.power_cut else "first boot"
        harness = QuietHarness(directory, UnsyncedDisk(), None, boot, self._work.harness.filters)
        harness.open(**self._work.settings)
        try:
            harness.settle()
            self._check_metadata(harness)
            logs = {
                (incarnation, partition.index): partition.log
                for incarnation, topic in self._topics(harness)
                for partition in topic.partitions
            }
            for (incarnation, partition), log in logs.items():
                batches = _fetched(harness, incarnation.name, partition, log) if harness.filters else _read(log)
                self._check_log(incarnation, partition, log, batches)
            self._check_offsets(harness)
            shared = SharedPromises(self._view, harness, logs)
            shared.check()
            CoordinatedPromises(self._view, harness, logs).check()
            for (incarnation, partition), log in logs.items():
                end_offset = log.end_offset
                answer = harness.probe(incarnation.name, partition)
                assert (answer.error_code, answer.base_offset) == (0, end_offset), "a new record has another place"
                shared.check_new((incarnation, partition), end_offset)
        finally:
            harness.broker.close()

    def _check_metadata(self, harness: QuietHarness) -> None:
        cluster_ids = {event.value for event in self._view.of("cluster", None) if self._view.is_certain(event)}
        assert not cluster_ids or {harness.broker.cluster_id} == cluster_ids, "another cluster id"
        for table, key in {event.key for event in self._view.events if event.kind == "row"}:
            rows = harness.listener.services.shared.table(table).rows
            possible = self._view.possible("row", (table, key))
            assert (key if key in rows else None) in possible, f"row {key} of {table}"
            self.held[ROWS] += None not in possible
        for key in {event.key for event in self._view.events if event.kind == "broker config"}:
            possible = self._view.possible("broker config", key)
            found = harness.broker.configs._dynamic[DEFAULT_BROKERS].get(key)
            assert found in possible, f"the broker's {key} is {found}"
            self.held[CONFIGS] += None not in possible
        for key in {event.key for event in self._view.events if event.kind == "group config"}:
            possible = self._view.possible("group config", key)
            found = harness.broker.group_configs.own(CONSUMER_GROUP).get(key)
            assert found in possible, f"the group's {key} is {found}"
            self.held[CONFIGS] += None not in possible
        given = {event.value for event in self._view.of("producer id", None) if self._view.is_certain(event)}
        assert harness.broker.producer_ids.allocate() not in given, "a producer id is given twice"
        self.held[IDS] += bool(given)

    def _topics(self, harness: QuietHarness) -> Iterable[tuple[Incarnation, Any]]:
        names = {event.key for event in self._view.events if event.kind == "topic"}
        # The broker creates internal topics by itself.
        found = {topic.name for topic in harness.broker.topics.all() if not topic.is_internal}
        assert found <= names, "a topic that was never created"
        for name in sorted(names):
            topic = harness.broker.topics.get(name)
            possible = self._view.possible("topic", name)
            if topic is None:
                assert None in possible, f"topic {name} is gone"
                continue
            fitting = [each for each in possible if each is not None and each.id in (topic.id, None)]
            assert fitting, f"topic {name} was deleted, or is another one"
            counts = {each: self._view.possible("partitions", each) for each in fitting}
            # The id of a topic whose creation was not acknowledged is unknown.
            known = [each for each in fitting if each.id is not None]
            fitting = [each for each in known or fitting if len(topic.partitions) in counts[each]]
            assert fitting, f"{name} has {len(topic.partitions)} partitions, not {list(counts.values())}"
            incarnation = fitting[-1]
            self.held[TOPICS] += None not in possible
            self.held[DELETED_TOPICS] += any(
                event.value is None and self._view.is_certain(event) for event in self._view.of("topic", name)
            )
            for key in {
                event.key for event in self._view.events if event.kind == "config" and event.key[0] is incarnation
            }:
                values = self._view.possible("config", key)
                assert topic.overrides.get(key[1]) in values, f"{name}: {key[1]} is {topic.overrides.get(key[1])}"
                self.held[CONFIGS] += None not in values
            yield incarnation, topic

    def _check_log(self, incarnation: Incarnation, partition: int, log: PartitionLog, batches: Batches) -> None:
        where = f"{incarnation.name}-{partition}"
        start, end = log.log_start_offset, log.end_offset
        moves = list(self._view.of("start", (incarnation, partition)))
        first = max((event.value for event in moves if self._view.is_certain(event)), default=0)
        last = max((event.value for event in moves), default=0)
        assert first <= start <= last, f"{where} starts at {start}, not within {first} and {last}"
        self.held[DELETED_RECORDS] += first > 0
        found, markers = _records(batches, start)
        offsets = sorted([*(offset for offset, _value in found), *markers])
        assert len(offsets) == len(set(offsets)), f"{where}: offsets {offsets}"
        if not incarnation.is_compacted and not self._view.power_cut:
            assert offsets == list(range(start, end)), f"{where} has a hole: {offsets} of {start} to {end}"
        sent = [each for each in self._work.sent if each.incarnation is incarnation and each.partition == partition]
        by_value = {each.value: each for each in sent if self._view.has_started(each.event)}
        values = [value for _offset, value in found]
        assert len(set(values)) == len(values), f"{where}: a record is there twice"
        keys_from: dict[bytes | None, int] = {}
        for offset, value in found:
            assert value in by_value, f"{where}: a record that was never sent, or of another topic: {value!r}"
            assert by_value[value].offset in (offset, None), f"{where}: {value!r} is at {offset}"
            keys_from[by_value[value].key] = offset
        durable = self._durable_below(incarnation, partition)
        there = dict(found)
        for each in sent:
            if each.offset is None or not self._view.is_certain(each.event) or not start <= each.offset < durable:
                continue
            if each.offset not in there:
                # Compaction also removes aborted records.
                is_aborted = each.transaction is not None and (
                    not each.transaction.ends or any(not end.value for end in each.transaction.ends)
                )
                is_superseded = incarnation.is_compacted and (is_aborted or keys_from.get(each.key, -1) > each.offset)
                assert is_superseded, f"{where}: {each.value!r} at {each.offset} is lost"
            self._note_record(incarnation)

    def _note_record(self, incarnation: Incarnation) -> None:
        self.held[RECORDS] += 1
        if self._view.power_cut:
            is_flushed = incarnation.configs.get("flush.messages") == "1"
            self.held[FLUSHED_RECORDS if is_flushed else ROLLED_RECORDS] += 1

    def _durable_below(self, incarnation: Incarnation, partition: int) -> float:
        if not self._view.power_cut:
            return float("inf")
        flushed = (
            event.value for event in self._view.of("flushed", (incarnation, partition)) if self._view.is_certain(event)
        )
        return max(flushed, default=0)

    def _check_offsets(self, harness: QuietHarness) -> None:
        groups = {group.group_id: group for group in harness.broker.groups.registry.all()}
        committed = groups[GROUP].offsets if GROUP in groups else {}
        for key in {event.key for event in self._view.events if event.kind == "offset"}:
            found = committed.get(key[1], {}).get(key[2])
            offset = found.offset if found is not None else None
            if self._view.power_cut and not self._work.settings.get("offsets_commit_fsync"):
                possible = [None, *(event.value for event in self._view.of("offset", key))]
            else:
                possible = self._view.possible("offset", key)
            assert offset in possible, f"offset of {key} is {offset}, not one of {possible}"
            synced = bool(self._work.settings.get("offsets_commit_fsync"))
            self.held[SYNCED_OFFSETS if synced else OFFSETS] += offset is not None


def _read(log: PartitionLog) -> Batches:
    """Return the batches of a log."""
    offset = log.log_start_offset
    while batches := fetch_batches(log, offset):
        yield from batches
        offset = batches[-1][0].last_offset + 1


def _fetched(harness: QuietHarness, topic: str, partition: int, log: PartitionLog) -> Batches:
    """Return the batches that clients of the listener get through its filters."""
    offset = log.log_start_offset
    while True:
        answer = harness.fetch(topic, offset, partition)
        assert answer.error_code == 0, f"{topic}-{partition} at {offset}: error {answer.error_code}"
        batches = list(iterate_batches(answer.records or b""))
        if not batches:
            return
        yield from batches
        offset = batches[-1][0].last_offset + 1


def _records(batches: Batches, offset: int) -> tuple[list[tuple[int, bytes]], list[int]]:
    """Return the offset and value of each record from an offset on, and the offsets of markers."""
    found = []
    markers = []
    for header, batch in batches:
        if header.is_control:
            markers.append(header.base_offset)
        else:
            for record in decode_records(batch):
                if record.offset >= offset:
                    assert record.value is not None
                    found.append((record.offset, record.value))
        offset = header.last_offset + 1
    return found, markers
