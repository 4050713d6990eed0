"""A log, a group, a share group and a register in memory, with faults that can be planted, and recording clients."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

from klamm.runtime.clock import ManualClock
from klamm.testing.histories import History, Recorder, read_history

PARTITIONS = ("orders-0", "orders-1")

# The effect of each fault, and its anomalies. The checker must name at least one of them.
FAULTS: dict[str, tuple[str, ...]] = {
    "lose the last record": ("lost_write",),
    "write a retry again": ("duplicate",),
    "show what was aborted": ("aborted_read",),
    "serve beyond the last stable offset": ("precommitted_read", "unwritten_read", "aborted_read"),
    "commit one partition of two": ("fractured_transaction", "torn_transaction"),
    "give one offset twice": ("inconsistent_offsets",),
    "skip a record": ("external_poll_skip", "int_poll_skip"),
    "go back": ("external_non_monotonic_poll", "int_non_monotonic_poll"),
    "acknowledge in another order": ("external_non_monotonic_send", "int_non_monotonic_send"),
    "reuse an epoch": ("double_owner",),
    "forget a fence": ("fenced_commit",),
    "acquire what another has": ("double_acquisition",),
    "forget a delivery": ("delivery_count",),
    "deliver what was accepted": ("delivered_again",),
    "answer from an old state": ("not_linearizable",),
}


class Model:
    """Clients and a broker that take turns. `fault` is one of `FAULTS`, or None for a correct broker."""

    def __init__(self, seed: int, fault: str | None = None) -> None:
        self._random = Random(seed)
        self._fault = fault
        self._file = io.StringIO()
        self._clock = ManualClock()
        self._record = Recorder(self._file, self._clock)
        self._logs: dict[str, list[list[Any]]] = {partition: [] for partition in PARTITIONS}
        self._positions: dict[tuple[str, str], int] = defaultdict(int)
        self._values = 0
        self._epoch = 0
        self._owners: dict[str, str] = {}
        self._shared: dict[int, dict[str, Any]] = {}
        self._register: list[Any] = [None]

    def run(self, steps: int) -> History:
        """Let clients work for a number of steps, then read everything."""
        actions: list[Callable[[], None]] = [
            self._send, self._send, self._transaction, self._transaction, self._poll, self._poll, self._rebalance,
            self._commit, self._acquire, self._acquire, self._acknowledge, self._administer, self._administer,
        ]  # fmt: skip
        for _ in range(steps):
            self._clock.advance_ms(1)
            self._random.choice(actions)()
        self._read_all()
        return read_history(self._file.getvalue().splitlines())

    def _wrong(self, fault: str) -> bool:
        return self._fault == fault and self._random.random() < 0.5

    def _new(self) -> int:
        self._values += 1
        return self._values

    def _append(self, partition: str, value: int, state: str) -> int:
        """Append a record that is "committed", "open", "aborted" or "lost". Return its offset."""
        self._logs[partition].append([value, state])
        return len(self._logs[partition]) - 1

    def _send(self) -> None:
        process, partition, value = self._random.choice(("p1", "p2")), self._random.choice(PARTITIONS), self._new()
        with self._record.operation(process, "send", [["send", partition, value]]) as call:
            outcome = self._random.random()
            if outcome < 0.1:
                call.fail()
                if self._wrong("show what was aborted"):
                    self._append(partition, value, "committed")
                return
            offset = self._append(partition, value, "committed")
            if self._wrong("write a retry again"):
                self._append(partition, value, "committed")
            if self._wrong("lose the last record"):
                self._logs[partition][offset][1] = "lost"
            if self._wrong("give one offset twice"):
                offset = max(0, offset - 1)
            if self._wrong("acknowledge in another order"):
                offset = self._append(partition, self._new(), "lost") if offset % 2 else 0
            if outcome > 0.15:
                call.ok([["send", partition, value, offset]])

    def _transaction(self) -> None:
        first, second = self._new(), self._new()
        steps = [["send", PARTITIONS[0], first], ["poll"], ["send", PARTITIONS[1], second]]
        with self._record.operation("t1", "txn", steps) as call:
            places = [(PARTITIONS[0], first), (PARTITIONS[1], second)]
            offsets = [self._append(partition, value, "open") for partition, value in places]
            polled = self._polled("t1")
            outcome = self._random.random()
            state = "aborted" if outcome < 0.3 else "committed"
            for (partition, _), offset in zip(places, offsets, strict=True):
                self._logs[partition][offset][1] = state
            if state == "committed" and self._wrong("commit one partition of two"):
                self._logs[PARTITIONS[1]][offsets[1]][1] = "lost"
            if state == "aborted" and self._wrong("show what was aborted"):
                self._logs[PARTITIONS[0]][offsets[0]][1] = "committed"
            done = [["send", *places[0], offsets[0]], ["poll", polled], ["send", *places[1], offsets[1]]]
            if state == "aborted":
                call.fail()
                # The client starts again from its committed position: nothing.
                for partition in PARTITIONS:
                    self._positions["t1", partition] = 0
            elif outcome > 0.4:
                call.ok(done)
            else:
                call.unknown(steps)
                for partition in PARTITIONS:
                    self._positions["t1", partition] = 0

    def _polled(self, process: str) -> dict[str, list[list[int]]]:
        found: dict[str, list[list[int]]] = {}
        for partition in PARTITIONS:
            log = self._logs[partition]
            position = self._positions[process, partition]
            if self._wrong("go back"):
                position = max(0, position - 2)
            records = []
            for offset in range(position, min(len(log), position + self._random.randint(1, 5))):
                value, state = log[offset]
                if state == "open" and not self._wrong("serve beyond the last stable offset"):
                    break
                if state in ("committed", "open") and not self._wrong("skip a record"):
                    records.append([offset, value])
                self._positions[process, partition] = offset + 1
            if records:
                found[partition] = records
        return found

    def _poll(self) -> None:
        process = self._random.choice(("c1", "c2"))
        if self._random.random() < 0.1:
            with self._record.operation(process, "assign", list(PARTITIONS)) as call:
                call.ok()
            for partition in PARTITIONS:
                self._positions[process, partition] = 0
        with self._record.operation(process, "poll", [["poll"]]) as call:
            call.ok([["poll", self._polled(process)]])

    def _rebalance(self) -> None:
        for partition, member in list(self._owners.items()):
            if self._random.random() < 0.7:
                self._own(member, "revoked", [partition])
                if not self._wrong("reuse an epoch"):
                    del self._owners[partition]
        if not self._wrong("reuse an epoch"):
            self._epoch += 1
        for partition in PARTITIONS:
            # A member that has not revoked was silent. It is fenced and does not know it.
            member = self._random.choice(("m1", "m2"))
            if self._fault == "reuse an epoch" and self._random.random() < 0.5:
                self._own("m1" if member == "m2" else "m2", "owned", [partition])
            self._owners[partition] = member
            self._own(member, "owned", [partition])

    def _own(self, member: str, function: str, partitions: list[str]) -> None:
        value = {"group": f"g-{partitions[0]}", "member": member, "epoch": self._epoch, "partitions": partitions}
        with self._record.operation(f"group-{member}", function, value) as call:
            call.ok()

    def _commit(self) -> None:
        if not self._owners:
            return
        partition = self._random.choice(sorted(self._owners))
        member = self._owners[partition]
        epoch = self._epoch
        if self._wrong("forget a fence"):
            member, epoch = ("m1" if member == "m2" else "m2"), epoch - 1
        value = {"group": f"g-{partition}", "member": member, "epoch": epoch, "offsets": {partition: 1}}
        with self._record.operation(f"group-{member}", "commit", value) as call:
            call.ok()

    def _share(self, function: str, member: str, offset: int, last: Any) -> None:
        value = {"group": "s", "member": member, "partition": PARTITIONS[0], "records": [[offset, offset, last]]}
        with self._record.operation(f"share-{member}", function, value) as call:
            call.ok()

    def _acquire(self) -> None:
        member = self._random.choice(("s1", "s2"))
        for offset in range(len(self._logs[PARTITIONS[0]])):
            record = self._shared.setdefault(offset, {"owner": None, "count": 0, "done": False})
            taken = record["owner"] is not None and not self._wrong("acquire what another has")
            done = record["done"] and not self._wrong("deliver what was accepted")
            if taken or done:
                continue
            record["owner"] = member
            if not self._wrong("forget a delivery"):
                record["count"] += 1
            self._share("acquired", member, offset, record["count"])
            return

    def _acknowledge(self) -> None:
        held = [offset for offset, record in self._shared.items() if record["owner"] is not None]
        if not held:
            return
        offset = self._random.choice(held)
        record = self._shared[offset]
        kind = self._random.choice(("accept", "release", "reject"))
        self._share("acknowledged", record["owner"], offset, kind)
        record["owner"], record["done"] = None, kind != "release"

    def _administer(self) -> None:
        process = self._random.choice(("a1", "a2"))
        if self._random.random() < 0.4:
            value = self._new()
            with self._record.operation(process, "set", {"register": "topic:orders", "value": value}) as call:
                self._register.append(value)
                if self._random.random() < 0.8:
                    call.ok()
            return
        with self._record.operation(process, "get", {"register": "topic:orders"}) as call:
            old = self._wrong("answer from an old state") and len(self._register) > 1
            call.ok({"register": "topic:orders", "value": self._register[-2 if old else -1]})

    def _read_all(self) -> None:
        with self._record.operation("last", "read_all") as call:
            call.ok(
                {
                    partition: [[offset, value] for offset, (value, state) in enumerate(log) if state == "committed"]
                    for partition, log in self._logs.items()
                }
            )
