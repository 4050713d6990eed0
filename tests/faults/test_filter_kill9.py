"""`kill -9` behind all registered filters: acknowledged records are read through them, once and in order."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.contract.filter_settings import alone_and_stacked, settings_of
from tests.faults.kills.season import Season
from tests.peers.klamm_server import KlammServer
from tests.peers.server import lasting_port

pytestmark = [pytest.mark.faults, pytest.mark.interop, pytest.mark.timeout(900)]
FORTH, BACK = alone_and_stacked()[-2:]
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    # Encrypted records are larger than the sizes that producers count.
    "message.max.bytes": str(1 << 24),
    "log.segment.bytes": str(1 << 24),
}


@pytest.mark.parametrize(
    ("names", "kills"),
    [(BACK, 2), *(pytest.param(names, 50, marks=pytest.mark.slow) for names in (FORTH, BACK))],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else f"{value}_kills",
)
def test_nothing_acknowledged_is_lost(tmp_path: Path, names: tuple[str, ...], kills: int, seed: int) -> None:
    filters = {key: value for key, _, value in (one.partition("=") for one in settings_of(names, tmp_path))}
    server = KlammServer(tmp_path / "server", SETTINGS | filters)
    server.port = lasting_port()
    with server:
        checked = Season(server, 0, random.Random(seed)).run(kills)
    assert checked.records > 0, "nothing was checked"
    assert checked.commits > 0, "nothing was checked"
