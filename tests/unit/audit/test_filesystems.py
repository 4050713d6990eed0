"""Paths in a store have the methods of a path that the commands use."""

import pytest

from klamm_spark.storage import filesystems
from klamm_spark.storage.filesystems import FileSystemError, StorePath, create_durably, path_of

fs = pytest.importorskip("pyarrow.fs")


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A bucket that is a folder."""
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
    assert str(file) == file.as_uri() == "s3://bucket/a lake/x/a b=%/1.compact"


def test_what_a_store_says_is_one_sentence(monkeypatch):
    with pytest.raises(FileSystemError, match=r"^nothing://host cannot be used: .*nothing") as caught:
        StorePath("nothing://host/x").exists()
    assert "\n" not in str(caught.value)
