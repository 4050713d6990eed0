"""The format of a history's file: one event on each line, as a JSON object, in the order of the events.

| field | value |
| --- | --- |
| `process` | the client, a string or a number; it has one operation at a time |
| `type` | `invoke`, then `ok`, `fail` (the operation certainly had no effect) or `info` (it may have had an effect) |
| `f` | the function, one of `FUNCTIONS` |
| `value` | the arguments; in the last event also the results |
| `time_ns` | optional: the time of a clock that all processes share |
| `isolation` | optional: `read_uncommitted` if the consumer has this isolation level |

The fields are those of Jepsen's operations, so that a history can be written in any language.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from klamm.config.problems import did_you_mean


class Kind(StrEnum):
    """The kind of an event: the start of an operation, or one of its possible ends."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


RECORDS: Final = ("send", "poll", "txn", "assign", "read_all")
GROUPS: Final = ("owned", "revoked", "commit")
SHARES: Final = ("acquired", "acknowledged", "left", "drained")
REGISTERS: Final = ("set", "get", "create", "delete")
FUNCTIONS: Final = (*RECORDS, *GROUPS, *SHARES, *REGISTERS)


class HistoryError(ValueError):
    """Raised for a line that is not an event; the message has the number of the line and the problem."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a history."""

    line: int
    process: str
    kind: Kind
    function: str
    value: Any
    time_ns: int | None = None
    isolation: str = "read_committed"


@dataclass(slots=True)
class Operation:
    """The call of a function, from its invocation to its end.

    `began` and `ended` are positions of events. If an operation has no end, `ended` is the number of events, and its
    outcome is `INFO`.
    """

    process: str
    function: str
    outcome: Kind
    began: int
    ended: int
    value: Any
    began_ns: int | None
    ended_ns: int | None
    isolation: str
    lines: tuple[int, ...]

    @property
    def reads_committed(self) -> bool:
        """Return True if the consumer reads only committed records."""
        return self.isolation != "read_uncommitted"


@dataclass(frozen=True, slots=True)
class History:
    """All operations in the order of their invocations, and the text of each line by its number, from 1."""

    operations: Sequence[Operation]
    texts: Sequence[str] = field(repr=False)

    def of(self, *functions: str) -> list[Operation]:
        """Return the operations that call one of the functions."""
        return [operation for operation in self.operations if operation.function in functions]


def read_history(lines: Iterable[str]) -> History:
    """Read the lines of a history. Raises HistoryError."""
    texts = [line.rstrip("\n") for line in lines]
    events = [_event(number, text) for number, text in enumerate(texts, 1) if text.strip()]
    return History(_operations(events), texts)


def _event(line: int, text: str) -> Event:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise HistoryError(f"line {line}: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise HistoryError(f"line {line}: an event is a JSON object, not {text[:40]}")
    if missing := [name for name in ("process", "type", "f") if name not in found]:
        raise HistoryError(f"line {line}: no {', '.join(missing)}")
    for name, known in (("type", [kind.value for kind in Kind]), ("f", FUNCTIONS)):
        if found[name] not in known:
            hint = did_you_mean(str(found[name]), known)
            raise HistoryError(f'line {line}: {name} is "{found[name]}", not one of {", ".join(known)}{hint}')
    time_ns = found.get("time_ns")
    if time_ns is not None and type(time_ns) is not int:
        raise HistoryError(f"line {line}: time_ns is an integer, not {time_ns!r}")
    isolation = found.get("isolation", "read_committed")
    if isolation not in ("read_committed", "read_uncommitted"):
        raise HistoryError(f'line {line}: isolation is read_committed or read_uncommitted, not "{isolation}"')
    value = found.get("value")
    if (problem := _problem(found["f"], Kind(found["type"]), value)) is not None:
        raise HistoryError(f"line {line}: the value of {found['f']} is {problem}, not {json.dumps(value)[:80]}")
    return Event(line, str(found["process"]), Kind(found["type"]), found["f"], value, time_ns, isolation)


def _operations(events: list[Event]) -> list[Operation]:
    open_by_process: dict[str, Operation] = {}
    operations = []
    for position, event in enumerate(events):
        running = open_by_process.get(event.process)
        if event.kind is Kind.INVOKE:
            if running is not None:
                raise HistoryError(f"line {event.line}: process {event.process} has not ended {running.function}")
            running = Operation(
                event.process, event.function, Kind.INVOKE, position, len(events), event.value,
                event.time_ns, None, event.isolation, (event.line,),
            )  # fmt: skip
            open_by_process[event.process] = running
            operations.append(running)
            continue
        if running is None or running.function != event.function:
            raise HistoryError(f"line {event.line}: process {event.process} has not invoked {event.function}")
        running.outcome, running.ended, running.ended_ns = event.kind, position, event.time_ns
        running.lines += (event.line,)
        if event.value is not None:
            running.value = event.value
        del open_by_process[event.process]
    for operation in operations:
        if operation.outcome is Kind.INVOKE:
            operation.outcome = Kind.INFO
        if operation.outcome is Kind.INFO:
            # Its effect may occur at any later time.
            operation.ended = len(events)
    return operations


def _is_offset(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (str, int, float))


def _are_records(value: Any) -> bool:
    """Return True for {partition: [[offset, value], ...]}."""
    return isinstance(value, dict) and all(
        isinstance(records, list)
        and all(
            isinstance(one, list) and len(one) == 2 and _is_offset(one[0]) and _is_scalar(one[1]) for one in records
        )
        for records in value.values()
    )


def _is_step(step: Any) -> bool:
    match step:
        case ["send", str(), value]:
            return _is_scalar(value)
        case ["send", str(), value, offset]:
            return _is_scalar(value) and (offset is None or _is_offset(offset))
        case ["poll"]:
            return True
        case ["poll", records]:
            return _are_records(records)
    return False


def _has(value: Any, **kinds: type | tuple[type, ...]) -> bool:
    return isinstance(value, dict) and all(
        isinstance(value.get(name), kind) and not (kind is int and isinstance(value[name], bool))
        for name, kind in kinds.items()
    )


def _problem(function: str, kind: Kind, value: Any) -> str | None:
    """Return the expected form of a value that has another form; None if it is right."""
    if function in ("send", "poll", "txn"):
        if (
            isinstance(value, list)
            and all(_is_step(step) for step in value)
            or (value is None and kind is not Kind.INVOKE)
        ):
            return None
        return 'a list of ["send", PARTITION, VALUE, OFFSET] and ["poll", {PARTITION: [[OFFSET, VALUE], ...]}]'
    if value is None and (kind is not Kind.OK or function == "assign"):
        return None
    if function == "assign":
        return None if isinstance(value, list) else "a list of partitions"
    if function == "read_all":
        return None if _are_records(value) else "{PARTITION: [[OFFSET, VALUE], ...]}"
    if function in ("owned", "revoked"):
        fits = _has(value, group=str, member=str, epoch=int, partitions=list)
        return None if fits else '{"group", "member", "epoch", "partitions": [...]}'
    if function == "commit":
        fits = _has(value, group=str, member=str, epoch=int, offsets=dict)
        return None if fits else '{"group", "member", "epoch", "offsets": {PARTITION: OFFSET}}'
    if function in SHARES:
        return _share_problem(function, value)
    return None if _has(value, register=str) else '{"register": NAME, ...}'


def _share_problem(function: str, value: Any) -> str | None:
    if function == "left":
        return None if _has(value, group=str, member=str) else '{"group", "member"}'
    if function == "drained":
        fits = _has(value, group=str, partition=str, from_offset=int)
        return None if fits else '{"group", "partition", "from_offset"}'
    last: type = int if function == "acquired" else str
    fits = _has(value, group=str, member=str, partition=str, records=list) and all(
        isinstance(one, list)
        and len(one) == 3
        and _is_offset(one[0])
        and _is_offset(one[1])
        and isinstance(one[2], last)
        for one in value["records"]
    )
    return (
        None
        if fits
        else (
            '{"group", "member", "partition", "records": [[FIRST, LAST, '
            + ("DELIVERY_COUNT" if function == "acquired" else '"accept"')
            + "], ...]}"
        )
    )
