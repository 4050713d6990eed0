"""Paths in an object store have the methods of a path that the commands use."""

import re

import pytest

from klamm.runtime import PLATFORM
from klamm_spark.storage import filesystems
from klamm_spark.storage.filesystems import FileSystemError, StorePath, create_durably, path_of, sync_all

fs = pytest.importorskip("pyarrow.fs")


@pytest.fixture
def store(tmp_path, monkeypatch):
    """Return a bucket that is a folder."""
    (tmp_path / "bucket").mkdir()
    monkeypatch.setattr(filesystems, "_store", lambda root: fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()))
    return path_of("s3://bucket/a lake")


def test_a_store_path_has_the_methods_of_a_path(store, tmp_path):
    path = store / "x"
    assert (path.exists(), path.is_dir(), list(path.glob("*"))) == (False, False, [])
    with pytest.raises(FileNotFoundError):
        list(path.iterdir())
    (tmp_path / "bucket" / "a lake" / "x" / "a b=%").mkdir(parents=True)
    file = path / "a b=%" / "1.compact"
    create_durably(file, b"a text")
    assert file.read_bytes() == b"a text"
    assert [path.name for path in file.parent.iterdir()] == ["1.compact"]
    assert (file.stem, file.suffix, file.parent.name, file.with_name("2").name) == ("1", ".compact", "a b=%", "2")
    (listed,) = file.parent.glob("*.compact")
    assert (listed, listed.stat().st_size, listed.is_dir()) == (file, 6, False)
    assert [found.is_dir() for found in path.iterdir()] == [True]
    file.unlink(missing_ok=True)
    assert list(file.parent.glob("*")) == []
    with pytest.raises(FileNotFoundError):
        file.stat()
    file.unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        file.unlink(missing_ok=False)
    assert str(file) == file.as_uri() == "s3://bucket/a lake/x/a b=%/1.compact"


def test_an_error_of_a_store_is_one_sentence(monkeypatch):
    with pytest.raises(FileSystemError, match=r"^nothing://host cannot be used: .*nothing") as caught:
        StorePath("nothing://host/x").exists()
    assert "\n" not in str(caught.value)


class FullDisk:
    """A store that confirms no write."""

    def __getattr__(self, name):
        return getattr(PLATFORM, name)

    def sync(self, descriptor):
        raise OSError(28, "No space left on device")

    sync_file_system = sync


def test_the_error_of_a_full_disk_names_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(filesystems, "PLATFORM", FullDisk())
    path = tmp_path / "folder" / "file"
    said = "cannot be written: No space left on device"
    with pytest.raises(FileSystemError, match=f"^{re.escape(str(path))} {said}$"):
        create_durably(path, b"x")
    assert not path.exists()
    if PLATFORM.directory_flags:
        with pytest.raises(FileSystemError, match=f"^{tmp_path} {said}$"):
            sync_all(tmp_path)


def test_the_error_of_a_store_that_refuses_a_write_names_the_file(store, monkeypatch):
    class Full:
        def __enter__(self):
            return self

        def __exit__(self, *raised):
            raise OSError("SlowDown")

        def write(self, data):
            pass

    monkeypatch.setattr(StorePath, "open_output", lambda self: Full())
    with pytest.raises(FileSystemError, match="^s3://bucket/a lake/x cannot be used: SlowDown$"):
        create_durably(store / "x", b"x")
