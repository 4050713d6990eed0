from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from groups_playbook import Playbook


@pytest.fixture
def make_playbook(tmp_path: Path) -> Iterator[Callable[..., Playbook]]:
    """Yield a function that makes a coordinator with these settings. The coordinators are closed after the test."""
    made: list[Playbook] = []

    def make(**settings: Any) -> Playbook:
        playbook = Playbook(tmp_path / "klamm.db", **settings)
        made.append(playbook)
        return playbook

    yield make
    for playbook in made:
        playbook.close()


@pytest.fixture
def play(make_playbook: Callable[..., Playbook]) -> Playbook:
    """Return a coordinator with Kafka's default settings."""
    return make_playbook()
