from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.log.playbook import OPENED, LogPlaybook


@pytest.fixture
def open_log(tmp_path: Path) -> Callable[..., LogPlaybook]:
    """Yield a function that opens a log on the test's own directory; see `LogPlaybook`."""
    return lambda **configs: LogPlaybook(tmp_path / "topic-0", **configs)


@pytest.fixture(autouse=True)
def closed_files() -> Iterator[None]:
    """Close the files of logs that a test leaves open, because `select` accepts no descriptor above 1023."""
    yield
    while OPENED:
        OPENED.pop().close_files()
