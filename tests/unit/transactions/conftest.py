"""Fixtures of the tests of transactions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.transactions.transactions_harness import TransactionsHarness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[TransactionsHarness]:
    """Yield a broker with the topics `t` (two partitions) and `u`."""
    harness = TransactionsHarness(tmp_path / "data")
    harness.data_dir.mkdir()
    harness.open()
    harness.create_topic("t", 2)
    harness.create_topic("u")
    yield harness
    harness.broker.close()
