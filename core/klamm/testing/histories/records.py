"""Checks of the records that clients sent and polled, after the published description of Jepsen's Kafka workload.

Each value is sent once, so a value identifies its write. The order of a partition follows from the offsets in
acknowledgements and polls. The checks use no other data of the server.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from klamm.testing.histories.anomaly import Anomaly
from klamm.testing.histories.cycles import cycle_in
from klamm.testing.histories.format import RECORDS, History, Kind, Operation

Value: TypeAlias = Any


@dataclass(slots=True)
class Write:
    """One sent value, the operation that sent it, and its offset if the send was acknowledged."""

    partition: str
    value: Value
    operation: Operation
    offset: int | None


@dataclass(slots=True)
class Logs:
    """The records of each partition that clients sent or polled.

    `seen` has the first operation that polled a value with `read_committed`; `polled` has the first with any isolation.
    """

    writes: dict[tuple[str, Value], Write] = field(default_factory=dict)
    values: dict[str, dict[int, dict[Value, Operation]]] = field(default_factory=lambda: defaultdict(dict))
    offsets: dict[tuple[str, Value], dict[int, Operation]] = field(default_factory=lambda: defaultdict(dict))
    polled: dict[tuple[str, Value], Operation] = field(default_factory=dict)
    seen: dict[tuple[str, Value], Operation] = field(default_factory=dict)
    complete: dict[str, Operation] = field(default_factory=dict)
    highest: dict[str, int] = field(default_factory=dict)

    def _place(self, partition: str, offset: int, value: Value, operation: Operation) -> None:
        self.values[partition].setdefault(offset, {}).setdefault(value, operation)
        self.offsets[partition, value].setdefault(offset, operation)

    def add_write(self, partition: str, value: Value, offset: int | None, operation: Operation) -> None:
        """Add a send. Its offset is used only if the send was acknowledged."""
        self.writes[partition, value] = Write(partition, value, operation, offset)
        if offset is not None and operation.outcome is not Kind.FAIL:
            self._place(partition, offset, value, operation)

    def add_read(self, partition: str, offset: int, value: Value, operation: Operation) -> None:
        """Add a record that a client received."""
        self._place(partition, offset, value, operation)
        self.polled.setdefault((partition, value), operation)
        if operation.reads_committed:
            self.seen.setdefault((partition, value), operation)
            self.highest[partition] = max(offset, self.highest.get(partition, -1))

    def is_hidden(self, write: Write) -> bool | None:
        """Return True if clients should have seen a committed write but did not; None if no client looked there."""
        if (write.partition, write.value) in self.seen:
            return False
        if write.partition in self.complete:
            # A read with `read_uncommitted` may have ended before the write began.
            return True if write.operation.ended < self.complete[write.partition].began else None
        if write.offset is not None and write.offset < self.highest.get(write.partition, -1):
            return True
        return None


def sends(operation: Operation) -> Iterator[tuple[str, Value, int | None]]:
    """Yield partition, value and offset of each send of an operation."""
    if operation.function in ("send", "txn"):
        for step in operation.value or ():
            if step[0] == "send":
                yield step[1], step[2], step[3] if len(step) == 4 else None


def reads(operation: Operation) -> Iterator[tuple[str, int, Value]]:
    """Yield partition, offset and value of each record that an operation received, in order."""
    if operation.outcome is Kind.FAIL:
        return
    if operation.function == "read_all":
        found = [operation.value or {}]
    elif operation.function in ("poll", "txn"):
        found = [step[1] for step in operation.value or () if step[0] == "poll" and len(step) == 2]
    else:
        return
    for polled in found:
        for partition, records in polled.items():
            for offset, value in records:
                yield partition, offset, value


def collect(history: History) -> Logs:
    """Build the logs of a history."""
    logs = Logs()
    for operation in history.of(*RECORDS):
        for partition, value, offset in sends(operation):
            logs.add_write(partition, value, offset, operation)
        for partition, offset, value in reads(operation):
            logs.add_read(partition, offset, value, operation)
        if operation.function == "read_all" and operation.outcome is Kind.OK and operation.reads_committed:
            for partition in operation.value:
                logs.complete[partition] = operation
    return logs


def inconsistent_offsets(logs: Logs) -> Iterator[Anomaly]:
    """Yield each offset at which two clients found different values."""
    for partition, by_offset in logs.values.items():
        for offset, values in by_offset.items():
            if len(values) > 1:
                text = f"{partition} has at offset {offset} the values {', '.join(map(repr, values))}"
                yield Anomaly.of("inconsistent_offsets", text, values.values(), {partition: offset})


def duplicates(logs: Logs) -> Iterator[Anomaly]:
    """Yield each value that has two offsets in a partition."""
    for (partition, value), by_offset in logs.offsets.items():
        if len(by_offset) > 1:
            text = f"{partition} has {value!r} at the offsets {', '.join(map(str, sorted(by_offset)))}"
            yield Anomaly.of("duplicate", text, by_offset.values(), {partition: min(by_offset)})


def unwritten_reads(logs: Logs) -> Iterator[Anomaly]:
    """Yield each polled record that no client had sent before."""
    for (partition, value), operation in logs.polled.items():
        write = logs.writes.get((partition, value))
        if write is None:
            yield Anomaly.of("unwritten_read", f"{partition} has {value!r}, which no client sent", [operation])
        elif operation.ended < write.operation.began:
            text = f"{value!r} was read from {partition} before it was sent"
            yield Anomaly.of("unwritten_read", text, [operation, write.operation])


def aborted_reads(logs: Logs) -> Iterator[Anomaly]:
    """Yield each value that was read although its write failed or was aborted (G1a)."""
    for key, write in logs.writes.items():
        if write.operation.outcome is not Kind.FAIL:
            continue
        readers = logs.polled if write.operation.function == "send" else logs.seen
        if key in readers:
            text = f"{write.value!r} was read from {write.partition} although its write was given up"
            yield Anomaly.of("aborted_read", text, [write.operation, readers[key]], _at(logs, key))


def precommitted_reads(logs: Logs) -> Iterator[Anomaly]:
    """Yield each value that a transaction has read before the value can have been committed."""
    for key, reader in logs.seen.items():
        write = logs.writes.get(key)
        if write is not None and write.operation is reader and reader.function == "txn":
            text = f"a transaction read its own {write.value!r} from {write.partition} before its end"
            yield Anomaly.of("precommitted_read", text, [reader], _at(logs, key))


def lost_writes(logs: Logs) -> Iterator[Anomaly]:
    """Yield each acknowledged value that is missing although a reader has read beyond its offset."""
    for key, write in logs.writes.items():
        if write.operation.outcome is Kind.OK and logs.is_hidden(write):
            if write.operation.function == "txn" and _is_partly_seen(logs, write.operation):
                continue
            reader = logs.complete.get(write.partition) or _reader_beyond(logs, write)
            text = f"{write.value!r} was acknowledged in {write.partition} and is not there"
            yield Anomaly.of("lost_write", text, [write.operation, reader], _at(logs, key))


def torn_transactions(logs: Logs) -> Iterator[Anomaly]:
    """Yield each transaction of which readers saw some values, but not others that they should have seen."""
    by_transaction: dict[int, list[Write]] = defaultdict(list)
    for write in logs.writes.values():
        if write.operation.function == "txn":
            by_transaction[id(write.operation)].append(write)
    for writes in by_transaction.values():
        operation = writes[0].operation
        visible = [write for write in writes if logs.is_hidden(write) is False]
        hidden = [write for write in writes if _would_be_seen(logs, write)]
        if visible and hidden:
            name = "fractured_transaction" if operation.outcome is Kind.OK else "torn_transaction"
            text = (
                f"of one transaction {visible[0].value!r} in {visible[0].partition} was seen, "
                f"{hidden[0].value!r} in {hidden[0].partition} was not"
            )
            reader = logs.seen[visible[0].partition, visible[0].value]
            later = logs.complete.get(hidden[0].partition) or _reader_beyond(logs, hidden[0])
            yield Anomaly.of(name, text, [operation, reader, later])


def _would_be_seen(logs: Logs, write: Write) -> bool:
    """Return True if a reader has not found the value, although it must have found it."""
    hidden = logs.is_hidden(write)
    if hidden is not None:
        return hidden
    complete = logs.complete.get(write.partition)
    if complete is None:
        return False
    proofs = [logs.seen[key] for key in ((w.partition, w.value) for w in _siblings(logs, write)) if key in logs.seen]
    # A read of one value proves that the transaction was committed, so any later read must find all values.
    return any(proof.ended < complete.began for proof in proofs) or complete in proofs


def _siblings(logs: Logs, write: Write) -> list[Write]:
    return [logs.writes[partition, value] for partition, value, _ in sends(write.operation)]


def _is_partly_seen(logs: Logs, operation: Operation) -> bool:
    return any((partition, value) in logs.seen for partition, value, _ in sends(operation))


def _reader_beyond(logs: Logs, write: Write) -> Operation:
    highest = logs.highest[write.partition]
    return next(iter(logs.values[write.partition][highest].values()))


def _at(logs: Logs, key: tuple[str, Value]) -> dict[str, int]:
    found = logs.offsets.get(key)
    return {key[0]: min(found)} if found else {}


def non_monotonic_sends(logs: Logs, history: History) -> Iterator[Anomaly]:
    """Yield each pair of sends of one process to one partition whose offsets are in the opposite order."""
    last: dict[tuple[str, str], tuple[int, Operation]] = {}
    for operation in history.of("send", "txn"):
        for partition, value, offset in sends(operation):
            if offset is None or operation.outcome is Kind.FAIL:
                continue
            before = last.get((operation.process, partition))
            if before is not None and offset <= before[0]:
                name = "int_non_monotonic_send" if before[1] is operation else "external_non_monotonic_send"
                text = f"{value!r} went to offset {offset} of {partition}, after one at {before[0]}"
                yield Anomaly.of(name, text, [before[1], operation], {partition: offset})
            last[operation.process, partition] = (offset, operation)


def poll_orders(logs: Logs, history: History) -> Iterator[Anomaly]:
    """Yield each poll that skips values which other clients found, or goes back, without an assignment in between.

    `int_…` anomalies are within one operation, `external_…` anomalies between two operations of a process.
    """
    visible = {
        partition: sorted(
            offset for offset, values in by_offset.items() if any((partition, value) in logs.seen for value in values)
        )
        for partition, by_offset in logs.values.items()
    }
    last: dict[str, dict[str, tuple[int, Operation]]] = defaultdict(dict)
    for operation in history.of(*RECORDS, "owned", "revoked"):
        positions = last[operation.process]
        if operation.function in ("assign", "owned", "revoked", "read_all") or operation.outcome is not Kind.OK:
            # A client whose operation failed goes back to the committed offset.
            positions.clear()
        if (
            operation.function not in ("poll", "txn")
            or operation.outcome is not Kind.OK
            or not operation.reads_committed
        ):
            continue
        for partition, offset, _ in reads(operation):
            before = positions.get(partition)
            positions[partition] = (offset, operation)
            if before is not None:
                yield from _between(logs, visible[partition], partition, before, (offset, operation))


def _between(
    logs: Logs, visible: list[int], partition: str, before: tuple[int, Operation], now: tuple[int, Operation]
) -> Iterator[Anomaly]:
    scope = "int" if before[1] is now[1] else "external"
    if now[0] <= before[0]:
        text = f"a process polled offset {now[0]} of {partition} after {before[0]}"
        yield Anomaly.of(f"{scope}_non_monotonic_poll", text, [before[1], now[1]], {partition: now[0]})
        return
    skipped = visible[bisect_right(visible, before[0]) : bisect_left(visible, now[0])]
    if skipped:
        first = skipped[0]
        text = f"a process polled offset {now[0]} of {partition} after {before[0]}, without {first}"
        met = next(
            logs.seen[key] for value in logs.values[partition][first] if (key := (partition, value)) in logs.seen
        )
        yield Anomaly.of(f"{scope}_poll_skip", text, [before[1], now[1], met], {partition: first})


def dependency_cycles(logs: Logs, history: History, *, writes: bool = False) -> Iterator[Anomaly]:
    """Yield cycles of transactions that depend on each other: G1c, and with `writes` G0.

    A transaction depends on the transactions whose values it read. With `writes`, it also depends on the transaction
    that wrote the previous value in a partition. In Kafka, transactions may write to a partition at the same time, so
    G0 is allowed there.
    """
    edges: dict[int, set[int]] = defaultdict(set)
    by_id = {id(operation): operation for operation in history.of("txn", "send", "poll")}
    for operation in by_id.values():
        for partition, _, value in reads(operation):
            write = logs.writes.get((partition, value))
            if write is not None and write.operation is not operation and operation.reads_committed:
                edges[id(write.operation)].add(id(operation))
    if writes:
        for partition, by_offset in logs.values.items():
            writers = [
                logs.writes[partition, value].operation
                for offset in sorted(by_offset)
                for value in by_offset[offset]
                if (partition, value) in logs.writes
            ]
            for earlier, later in zip(writers, writers[1:], strict=False):
                if earlier is not later:
                    edges[id(earlier)].add(id(later))
    for cycle in cycle_in(edges):
        text = f"{len(cycle)} operations each depend on the one before, in a circle"
        yield Anomaly.of("write_cycle" if writes else "dependency_cycle", text, [by_id[number] for number in cycle])


def check_records(history: History, *, at_least_once: bool = False, write_cycles: bool = False) -> list[Anomaly]:
    """Return all anomalies of records. With `at_least_once`, producers may write a value twice."""
    logs = collect(history)
    found: list[Anomaly] = []
    for check in _CHECKS:
        if at_least_once and check is duplicates:
            continue
        found += check(logs)
    found += non_monotonic_sends(logs, history)
    found += poll_orders(logs, history)
    found += dependency_cycles(logs, history)
    if write_cycles:
        found += dependency_cycles(logs, history, writes=True)
    return found


def unseen(history: History) -> Mapping[str, int]:
    """Return, for each partition, the number of acknowledged values that no client polled.

    They are not anomalies if no client has read that far.
    """
    logs = collect(history)
    counts: dict[str, int] = defaultdict(int)
    for key, write in logs.writes.items():
        if write.operation.outcome is Kind.OK and key not in logs.polled and not logs.is_hidden(write):
            counts[write.partition] += 1
    return counts


_CHECKS: Final[tuple[Callable[[Logs], Iterator[Anomaly]], ...]] = (
    inconsistent_offsets,
    duplicates,
    unwritten_reads,
    aborted_reads,
    precommitted_reads,
    lost_writes,
    torn_transactions,
)
