"""Fixtures of the tests of share groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.share.test_share_fetch import Shares


@pytest.fixture
def shares(tmp_path: Path) -> Any:
    made = Shares(tmp_path)
    yield made
    made.harness.broker.close()
