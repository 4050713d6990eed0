"""Tests of files that are replaced in one step: links are not followed, and a file gets its mode."""

import os

import pytest

from klamm.runtime import replace_file
from klamm.server.serving import prepare_ready_file, write_ready_file


@pytest.fixture(autouse=True)
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_the_file_is_complete_and_has_its_mode(tmp_path, mode):
    file = tmp_path / "file"
    for content in (b"old", b"new"):
        replace_file(file, content, mode)
        assert file.read_bytes() == content
        assert file.stat().st_mode & 0o777 == mode
    assert list(tmp_path.iterdir()) == [file], "the folder has no other file"


def test_a_failure_leaves_only_the_old_file(tmp_path):
    folder = tmp_path / "taken"
    (folder / "inner").mkdir(parents=True)
    with pytest.raises(OSError, match="taken"):
        replace_file(folder, b"a file cannot replace a folder")
    assert list(tmp_path.iterdir()) == [folder]


def test_a_link_in_place_of_the_file_is_replaced_and_not_followed(tmp_path):
    victim, file = tmp_path / "victim", tmp_path / "file"
    victim.write_text("precious")
    file.symlink_to(victim)
    replace_file(file, b"token")
    assert victim.read_text() == "precious"
    assert not file.is_symlink()


@pytest.mark.parametrize("to", ["a file", "nothing yet"])
def test_the_ready_file_and_its_token_are_not_written_through_a_link(tmp_path, to):
    victim, ready = tmp_path / "victim", tmp_path / "ready.json"
    if to == "a file":
        victim.write_text("precious")
    ready.with_name("ready.json.tmp").symlink_to(victim)
    prepare_ready_file(ready)
    write_ready_file(ready, {"default": "127.0.0.1:1"}, {"token": "secret"})
    assert "secret" in ready.read_text()
    assert ready.stat().st_mode & 0o777 == 0o600
    assert victim.read_text() == "precious" if to == "a file" else not victim.exists()


def test_a_ready_file_without_secrets_is_readable_by_all_users(tmp_path):
    ready = tmp_path / "ready.json"
    write_ready_file(ready, {"default": "127.0.0.1:1"}, {})
    assert ready.stat().st_mode & 0o777 == 0o644


def test_the_start_fails_if_the_ready_file_cannot_be_written(tmp_path):
    with pytest.raises(OSError, match="no-such"):
        prepare_ready_file(tmp_path / "no-such" / "ready.json")
