"""Histories of clients, and a checker that finds violations of a broker's guarantees.

A recorder writes the operations of each client and their results. `check_history` returns each anomaly with the lines
that show it. The checks of records follow the published description of Jepsen's Kafka workload.
"""

from __future__ import annotations

from klamm.testing.histories.anomaly import Anomaly
from klamm.testing.histories.format import Event, History, HistoryError, Kind, Operation, read_history
from klamm.testing.histories.groups import check_groups
from klamm.testing.histories.recorder import Call, Recorder
from klamm.testing.histories.records import check_records, unseen
from klamm.testing.histories.registers import check_registers
from klamm.testing.histories.shares import check_shares

__all__ = [
    "Anomaly",
    "Call",
    "Event",
    "History",
    "HistoryError",
    "Kind",
    "Operation",
    "Recorder",
    "check_history",
    "read_history",
    "unseen",
]


def check_history(history: History, *, at_least_once: bool = False, write_cycles: bool = False) -> list[Anomaly]:
    """Return all anomalies of a history, in the order of their last lines.

    With `at_least_once`, a value may be in a partition twice, because producers without idempotence may repeat a write.
    With `write_cycles`, cycles of transactions in the order of their writes (G0) are anomalies too, although Kafka
    allows them.
    """
    found = check_records(history, at_least_once=at_least_once, write_cycles=write_cycles)
    found += check_groups(history)
    found += check_shares(history)
    found += check_registers(history)
    return sorted(found, key=lambda one: (one.lines[-1], one.name, one.text))
