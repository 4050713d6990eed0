"""Simulated histories of klamm with planted faults. `python -m` prints the number of histories until each is named."""

from __future__ import annotations

import multiprocessing
import sys
from random import Random

from tests.interop.histories import planted
from tests.unit.testing import (
    planted_groups,
    planted_machine,
    planted_restarts,
    simulated_histories,
    simulated_machine,
    simulated_restarts,
)

HISTORIES = 200
# It needs a process that starts.
_OF_RECORDS = {
    fault: names for fault, names in planted.FAULTS.items() if fault is not planted.lose_the_last_batches_at_a_start
}
_FOUND_BY = _OF_RECORDS | planted_groups.FAULTS | planted_restarts.FAULTS | planted_machine.FAULTS
FAULTS = {fault.__name__: fault for fault in _FOUND_BY}


def histories_until(name: str) -> int | None:
    """Plant the fault with this name in this process. Return the number of histories until it is named."""
    fault = FAULTS[name]
    planted._CHOOSE = Random(0)
    fault()
    anomalies_of = simulated_histories.anomalies_of
    if fault in planted_restarts.FAULTS:
        anomalies_of = simulated_restarts.anomalies_of
    elif fault in planted_machine.FAULTS:
        anomalies_of = simulated_machine.anomalies_of
    for seed in range(HISTORIES):
        if {one.name for one in anomalies_of(seed)} & _FOUND_BY[fault]:
            return seed + 1
    return None


def main(names: list[str]) -> None:
    """Print a line for each fault. Each fault gets its own process."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for name, number in zip(names, pool.imap(histories_until, names, chunksize=1), strict=True):
            print(name, number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(FAULTS))
