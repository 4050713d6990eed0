"""Tests of a log on systems where open files cannot be renamed, or where case in names does not matter."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from klamm.runtime import PLATFORM
from klamm_broker.log import manager
from tests.unit.log.playbook import START_MS, TOPIC_ID, config, produced
from tests.unit.log.test_manager import Managed


@pytest.fixture
def managed(tmp_path: Path) -> Iterator[Managed]:
    managed = Managed(tmp_path / "logs")
    yield managed
    managed.manager.close()


def open_paths() -> list[str]:
    """Return the paths of the open files of this process."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue
    return found


def test_a_topic_is_deleted_even_if_directories_with_open_files_cannot_be_renamed(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "PLATFORM", replace(PLATFORM, keeps_open_files=False))
    rename = type(managed.disk).rename

    def as_on_windows(disk: object, source: Path, target: Path) -> None:
        if [path for path in open_paths() if path.startswith(f"{source}/")]:
            raise PermissionError(13, "The process cannot access the file because it is being used")
        rename(managed.disk, source, target)

    monkeypatch.setattr(type(managed.disk), "rename", as_on_windows)
    for partition in (0, 1):
        managed.log(partition).append(produced(b"x"), now_ms=START_MS)
    reader = managed.log(1).read(0, 1000)
    managed.manager.delete("topic", 0)
    with pytest.raises(PermissionError):
        managed.manager.delete("topic", 1)
    del reader
    managed.manager.delete("topic", 1)
    assert not {"topic-0", "topic-1"} & managed.names()


def test_a_topic_does_not_use_the_directory_of_one_whose_name_differs_in_case(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed.log().append(produced(b"x"), now_ms=START_MS)
    (managed.data_dir / "Topic-0").symlink_to("topic-0")
    names = os.listdir(managed.data_dir)
    monkeypatch.setattr(os, "listdir", lambda _path: [name for name in names if name != "Topic-0"])
    with pytest.raises(FileExistsError, match="differs only in case"):
        managed.manager.get_or_create("Topic", 0, bytes(reversed(TOPIC_ID)), config())
    monkeypatch.undo()
    assert managed.log().end_offset == 1
    assert "topic-0" in managed.names()
