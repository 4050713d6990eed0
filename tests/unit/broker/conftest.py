"""Fixtures of the broker's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.broker.broker_harness import BrokerHarness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[BrokerHarness]:
    """Yield a broker with default settings on an empty directory."""
    harness = BrokerHarness(tmp_path)
    harness.open()
    yield harness
    harness.broker.close()
