"""`shrink`, which finds the steps of a failing script that are necessary for the failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

_Step = TypeVar("_Step")


def shrink(steps: Sequence[_Step], fails: Callable[[list[_Step]], bool]) -> list[_Step]:
    """Return some of the steps, in their order. They still fail together, and each of them is necessary.

    `fails` runs a script and returns True if it fails. Raises ValueError if the whole script does not fail. Like
    Zeller's delta debugging, this tries to leave out large parts first, then smaller ones.
    """
    left = list(steps)
    if not fails(left):
        raise ValueError(f"the script of {len(left)} steps does not fail")
    size = max(1, len(left) // 2)
    while True:
        start, smaller = 0, False
        while start < len(left):
            without = left[:start] + left[start + size :]
            if fails(without):
                left, smaller = without, True
            else:
                start += size
        if size > 1:
            size //= 2
        elif not smaller:
            return left
