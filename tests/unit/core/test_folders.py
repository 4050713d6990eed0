"""Tests that new folders of a server survive a power failure."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from klamm.runtime import PLATFORM, files
from klamm.runtime.files import make_folder


def test_the_parent_of_each_new_folder_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    recording = replace(PLATFORM, sync=lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    monkeypatch.setattr(files, "PLATFORM", recording)
    folder = tmp_path / "a" / "b"
    make_folder(folder)
    assert folder.is_dir()
    assert sorted(synced) == sorted(each.stat().st_ino for each in (tmp_path, tmp_path / "a"))
    synced.clear()
    make_folder(folder)
    assert synced == []
