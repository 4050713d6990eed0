"""Checks of values that admins write and read: each name is a register, whose operations must be linearizable.

The search is the algorithm of Wing and Gong with Lowe's cache, which porcupine uses too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from typing import Any

from klamm.testing.histories.anomaly import Anomaly
from klamm.testing.histories.format import REGISTERS, History, Kind, Operation

ABSENT = None


def check_registers(history: History) -> list[Anomaly]:
    """Return one anomaly for each register whose operations have no order that explains their results."""
    by_name: dict[str, list[Operation]] = defaultdict(list)
    for operation in history.of(*REGISTERS):
        unknown_read = operation.function == "get" and operation.outcome is not Kind.OK
        if operation.outcome is not Kind.FAIL and operation.value is not None and not unknown_read:
            by_name[operation.value["register"]].append(operation)
    found = []
    for name, operations in by_name.items():
        if not is_linearizable(operations):
            shortest = _shorten(operations)
            text = f"no order of the operations on {name} explains their results"
            found.append(Anomaly.of("not_linearizable", text, shortest))
    return found


def is_linearizable(operations: list[Operation]) -> bool:
    """Return True if the operations can have taken effect in some order, each between its start and its end."""
    pending = sorted(operations, key=lambda one: one.began)
    certain = sum(1 << n for n, one in enumerate(pending) if one.outcome is Kind.OK)
    tried: set[tuple[int, Hashable]] = set()
    stack: list[tuple[int, Hashable]] = [(0, ABSENT)]
    while stack:
        done, state = stack.pop()
        if done & certain == certain:
            return True
        if (done, state) in tried:
            continue
        tried.add((done, state))
        # An operation that ended before another began must come before that one.
        deadline = min(one.ended for n, one in enumerate(pending) if not done >> n & 1 and certain >> n & 1)
        for n, one in enumerate(pending):
            if one.began > deadline:
                break
            if not done >> n & 1:
                after, fits = _apply(one, state)
                if fits:
                    stack.append((done | 1 << n, after))
    return False


def _apply(operation: Operation, state: Hashable) -> tuple[Hashable, bool]:
    """Return the register's next state, and True if the operation's result fits the state."""
    value = operation.value
    known = operation.outcome is Kind.OK
    match operation.function:
        case "set":
            return _frozen(value.get("value")), True
        case "get":
            return state, _frozen(value.get("value")) == state
        case "create":
            created = state is ABSENT
            fits = not known or value.get("created", True) is created
            return (_frozen(value.get("value", True)) if created else state), fits
        case _:
            fits = not known or value.get("deleted", True) is (state is not ABSENT)
            return ABSENT, fits


def _frozen(value: Any) -> Hashable:
    """Return a hashable form of a value."""
    if isinstance(value, dict):
        return tuple(sorted((key, _frozen(one)) for key, one in value.items()))
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _shorten(operations: list[Operation]) -> list[Operation]:
    """Return a small part of the operations that still has no order that explains the results."""
    kept = list(operations)
    for one in operations:
        fewer = [other for other in kept if other is not one]
        # If another operation read the value of a write, the write stays. Otherwise that read would be the anomaly.
        read = {_frozen(other.value.get("value")) for other in fewer if other.function == "get"}
        if one.function != "get" and _frozen(one.value.get("value")) in read:
            continue
        if not is_linearizable(fewer):
            kept = fewer
    return kept
