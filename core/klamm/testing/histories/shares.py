"""Checks of share groups: a record belongs to one member at a time, its deliveries are counted, and none is lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from klamm.testing.histories.anomaly import Anomaly
from klamm.testing.histories.format import SHARES, History, Kind, Operation
from klamm.testing.histories.records import sends

_FINAL: Final = ("accept", "reject")


@dataclass(slots=True)
class _Delivery:
    """One acquisition of one record.

    `until` is the position of an event: the member had the record at least from the end of `acquired` until then.
    `given` is the acknowledgement, `ended` the operation that ended the acquisition.
    """

    member: str
    count: int
    operation: Operation
    until: int
    lock_until_ns: int | None
    given: str | None = None
    ended: Operation | None = None


def check_shares(history: History) -> list[Anomaly]:
    """Return all anomalies of share groups.

    If `acquired` has `lock_ms` and times, it holds its records for at most that long after its invocation.
    """
    deliveries: dict[tuple[str, str, int], list[_Delivery]] = defaultdict(list)
    drained = []
    for operation in history.of(*SHARES):
        if operation.outcome is Kind.FAIL or operation.value is None:
            continue
        value = operation.value
        if operation.function == "drained":
            drained.append(operation)
        elif operation.function == "left":
            _leave(deliveries, operation)
        elif operation.function == "acquired":
            _acquire(deliveries, operation, len(history.texts))
        else:
            for first, last, kind in value["records"]:
                for offset in range(first, last + 1):
                    _acknowledge(deliveries[value["group"], value["partition"], offset], operation, kind)
    return [*_wrong_deliveries(deliveries), *_lost(history, deliveries, drained)]


def _acquire(deliveries: dict[tuple[str, str, int], list[_Delivery]], operation: Operation, end: int) -> None:
    value = operation.value
    lock_ms = value.get("lock_ms")
    until_ns = None if lock_ms is None or operation.began_ns is None else operation.began_ns + lock_ms * 1_000_000
    for first, last, count in value["records"]:
        for offset in range(first, last + 1):
            delivery = _Delivery(value["member"], count, operation, end, until_ns)
            deliveries[value["group"], value["partition"], offset].append(delivery)


def _acknowledge(deliveries: list[_Delivery], operation: Operation, kind: str) -> None:
    for delivery in reversed(deliveries):
        if delivery.member == operation.value["member"]:
            if kind == "renew":
                delivery.lock_until_ns = None
            elif delivery.ended is None:
                delivery.until, delivery.ended = operation.began, operation
                delivery.given = kind if operation.outcome is Kind.OK else None
            return


def _leave(deliveries: dict[tuple[str, str, int], list[_Delivery]], operation: Operation) -> None:
    for (group, _, _), of_record in deliveries.items():
        for delivery in of_record:
            mine = group == operation.value["group"] and delivery.member == operation.value["member"]
            if mine and delivery.ended is None:
                delivery.until, delivery.ended = operation.began, operation
            if mine and delivery.given is None:
                # An acknowledgement without an answer may have had no effect.
                delivery.given = "left"


def _wrong_deliveries(deliveries: dict[tuple[str, str, int], list[_Delivery]]) -> Iterator[Anomaly]:
    for (group, partition, offset), of_record in deliveries.items():
        place = f"offset {offset} of {partition} in {group}"
        for earlier, later in zip(of_record, of_record[1:], strict=False):
            if later.operation.began < earlier.operation.ended:
                continue
            both = [earlier.operation, later.operation]
            if _overlap(earlier, later):
                text = f"{place} is with {earlier.member} and {later.member}"
                yield Anomaly.of("double_acquisition", text, both, {partition: offset})
            # If a member leaves, its delivery is not counted.
            least = earlier.count if earlier.given == "left" else earlier.count + 1
            if later.count < least:
                text = f"{place} was delivered {earlier.count} times, then {later.count} times"
                yield Anomaly.of("delivery_count", text, both, {partition: offset})
        for delivery in of_record:
            if delivery.given not in _FINAL or delivery.ended is None:
                continue
            for again in of_record:
                if again.operation.began > delivery.ended.ended:
                    text = f"{place} was delivered after {delivery.member} had given {delivery.given}"
                    yield Anomaly.of("delivered_again", text, [delivery.ended, again.operation], {partition: offset})
                    break


def _overlap(earlier: _Delivery, later: _Delivery) -> bool:
    """Return True if the earlier member certainly had the record until the later one had it."""
    if later.operation.ended > earlier.until or earlier.member == later.member:
        return False
    if earlier.lock_until_ns is None:
        # Without times, the lock may have expired.
        return earlier.operation.value.get("lock_ms") is None
    return later.operation.ended_ns is not None and later.operation.ended_ns < earlier.lock_until_ns


def _lost(
    history: History, deliveries: dict[tuple[str, str, int], list[_Delivery]], drained: list[Operation]
) -> Iterator[Anomaly]:
    for operation in drained:
        if operation.outcome is not Kind.OK:
            continue
        group, partition, start = (operation.value[name] for name in ("group", "partition", "from_offset"))
        for sent in history.of("send", "txn"):
            if sent.outcome is not Kind.OK or sent.ended >= operation.began:
                continue
            for place, value, offset in sends(sent):
                if place != partition or offset is None or offset < start:
                    continue
                if not deliveries.get((group, partition, offset)):
                    text = f"{value!r} at offset {offset} of {partition} was never delivered to {group}"
                    yield Anomaly.of("lost_delivery", text, [sent, operation], {partition: offset})
