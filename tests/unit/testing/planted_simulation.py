"""Simulated histories of klamm with a planted fault: `python -m` prints the number of histories until it is named."""

from __future__ import annotations

import sys
from random import Random

from tests.interop.histories import planted
from tests.unit.testing.simulated_histories import anomalies_of

HISTORIES = 200


def histories_until(name: str) -> int | None:
    """Plant the fault of that name in this process; return the number of histories until it is named."""
    fault = next(each for each in planted.FAULTS if each.__name__ == name)
    planted._CHOOSE = Random(0)
    fault()
    for seed in range(HISTORIES):
        if {one.name for one in anomalies_of(seed)} & planted.FAULTS[fault]:
            return seed + 1
    return None


if __name__ == "__main__":
    print(histories_until(sys.argv[1]))
