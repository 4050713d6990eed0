"""Tests of programs that are built once for tests and benchmarks, completely or not at all."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.peers.builds import cache_dir, cached


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return cache_dir()


def folder_with_a_file(folder: Path) -> Path:
    (folder / "rest").touch()
    (folder / "made").mkdir()
    (folder / "made" / "file").write_text("text")
    return folder / "made"


def test_a_build_is_kept_and_its_temporary_folder_is_removed(cache):
    assert (cached("name", folder_with_a_file) / "file").read_text() == "text"
    assert [path.name for path in cache.iterdir()] == ["name"]


def test_a_program_is_built_once():
    built = cached("name", folder_with_a_file)
    assert cached("name", lambda folder: pytest.fail(f"built again in {folder}")) == built


def test_a_second_caller_waits_for_the_first_build():
    building, asked = threading.Event(), threading.Event()

    def build(folder: Path) -> Path:
        building.set()
        assert asked.wait(60)
        return folder_with_a_file(folder)

    with ThreadPoolExecutor() as pool:
        first = pool.submit(cached, "name", build)
        assert building.wait(60)
        second = pool.submit(cached, "name", lambda folder: pytest.fail(f"built again in {folder}"))
        asked.set()
        assert second.result(60) == first.result(60)


def test_a_failed_build_leaves_nothing(cache):
    def fails(folder: Path) -> Path:
        folder_with_a_file(folder)
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        cached("name", fails)
    assert list(cache.iterdir()) == []
    assert cached("name", folder_with_a_file).is_dir()
