from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.log.playbook import LogPlaybook


@pytest.fixture
def open_log(tmp_path: Path) -> Callable[..., LogPlaybook]:
    """Opens a log on a directory of the test's own; see `LogPlaybook`."""
    return lambda **configs: LogPlaybook(tmp_path / "topic-0", **configs)
