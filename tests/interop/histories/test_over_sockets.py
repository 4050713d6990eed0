"""Histories of the simulation's clients over real sockets have no anomaly. `-m slow -s` runs many."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.histories.over_sockets import SETTINGS, anomalies_of
from tests.interop.histories.test_histories import HISTORIES
from tests.peers.target import lasting_server

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


def test_a_history_of_all_groups_has_no_anomaly(tmp_path: Path, seed: int) -> None:
    with lasting_server(tmp_path, SETTINGS) as server:
        assert anomalies_of(server, seed, 2)[0] == []


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_histories_of_all_groups_have_no_anomaly(tmp_path: Path, seed: int) -> None:
    wrong = {}
    for number in range(seed, seed + HISTORIES):
        with lasting_server(tmp_path / str(number), SETTINGS) as server:
            found, disturbances = anomalies_of(server, number, 6)
        print(
            f"seed {number}: {disturbances} disturbances, {len(found)} anomalies {sorted({one.name for one in found})}",
            flush=True,
        )
        if found:
            wrong[number] = found
    assert wrong == {}
