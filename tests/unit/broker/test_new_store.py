"""The first file of a store is built in memory and put in place in one step, wherever the first start ends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from klamm.runtime import files
from klamm_broker.storage.store import Store

PRAGMAS = ("user_version", "auto_vacuum", "journal_mode", "page_size", "encoding", "integrity_check", "synchronous")
ENDED_AT_EACH_CALL = """
import itertools, os, pathlib, sys
from klamm_broker.storage.new_database import new_database
from klamm_broker.storage.store import Store

def open_until(path, calls):
    def count(frame, event, called):
        nonlocal calls
        calls -= event == "c_call"
        if not calls:
            os._exit(1)

    store = Store(path)
    sys.setprofile(count)
    store.open()
    os._exit(0)

new_database()
for calls in itertools.count(1):
    folder = pathlib.Path(sys.argv[1], str(calls))
    folder.mkdir()
    child = os.fork() or open_until(folder / "klamm.db", calls)
    if not os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        break
"""
"""The script ends a process before its first, second, … call of a function of C, each time in a new folder."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "klamm.db"


def opened(path: Path) -> Store:
    store = Store(path)
    store.open()
    return store


def content(path: Path) -> dict[str, object]:
    """Return the content of a store once it is open."""
    store = opened(path)
    tables = store.read("SELECT name FROM sqlite_master WHERE type = 'table'")
    found: dict[str, object] = {pragma: store.read(f"PRAGMA {pragma}") for pragma in PRAGMAS}
    found["schema"] = store.read("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name")
    found["rows"] = [store.read(f'SELECT count(*) FROM "{name}"') for (name,) in tables]
    store.close()
    return found


def test_a_new_file_equals_the_result_of_all_migrations(path: Path, tmp_path: Path) -> None:
    """SQLite builds the other file, which exists and is empty, step by step."""
    (tmp_path / "steps").touch()
    made = content(path)
    assert made == content(tmp_path / "steps")
    assert made["journal_mode"] == [("wal",)]
    assert made["integrity_check"] == [("ok",)]


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_only_the_user_may_read_a_new_file(path: Path) -> None:
    store = opened(path)
    assert {each.stat().st_mode & 0o777 for each in path.parent.iterdir()} == {0o600}
    store.close()


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_remains_of_an_older_file_never_enter_a_new_one(path: Path, suffix: str) -> None:
    """The old file was deleted, but not the files that SQLite kept beside it."""
    store = opened(path)
    store.exclusively(lambda connection: connection.execute("INSERT INTO internal_topics (name) VALUES ('old')"))
    kept = path.with_name("klamm.db-wal").read_bytes()
    store.close()
    path.unlink()
    path.with_name(f"klamm.db{suffix}").write_bytes(kept)
    store = opened(path)
    assert store.read("SELECT * FROM internal_topics") == []
    assert store.read("PRAGMA integrity_check") == [("ok",)]
    store.close()


def state(folder: Path) -> frozenset[tuple[str, bytes]]:
    """Return the files of a folder, without random parts of their names."""
    return frozenset((re.sub(r"-[0-9a-f]{16}$", "", each.name), each.read_bytes()) for each in folder.iterdir())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_first_start_that_ends_anywhere_starts_again(path: Path, tmp_path: Path) -> None:
    ends = tmp_path / "ends"
    ends.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    subprocess.run([sys.executable, "-c", ENDED_AT_EACH_CALL, ends], env=environment, check=True, timeout=120)
    states = {state(folder): folder for folder in ends.iterdir()}
    names = [{name for name, _ in found} for found in states]
    assert set() in names, "nothing is there yet"
    assert {".klamm.db"} in names, "the file has not its name yet"
    assert {"klamm.db"} in names, "SQLite has not opened it yet"
    whole = content(path)
    for folder in states.values():
        assert content(folder / "klamm.db") == whole


class RecordedPlatform:
    """The platform, which records the calls of sync and rename."""

    def __init__(self, real: object) -> None:
        self._real = real
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in ("sync", "replace"):
            self.calls.append(name)
        return getattr(self._real, name)


@pytest.mark.parametrize("is_temporary", [False, True])
def test_a_power_cut_leaves_a_whole_file_or_none(
    path: Path, monkeypatch: pytest.MonkeyPatch, is_temporary: bool
) -> None:
    platform = RecordedPlatform(files.PLATFORM)
    monkeypatch.setattr(files, "PLATFORM", platform)
    store = Store(path)
    store.is_temporary = is_temporary
    store.open()
    store.close()
    folder = ["sync"] if platform.directory_flags else []
    assert platform.calls == (["replace"] if is_temporary else ["sync", "replace", *folder])
