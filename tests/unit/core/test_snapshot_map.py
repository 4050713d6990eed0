"""Tests of a mapping that other threads read while it changes."""

import pytest

from klamm.runtime.snapshot_map import SnapshotMap


def test_a_reader_sees_the_content_of_one_moment():
    found = SnapshotMap()
    found["a"] = 1
    reader, views = iter(found), (found.keys(), found.values(), found.items())
    found["b"] = 2
    found.change({"c": 3}, {})
    del found["a"]
    assert (list(reader), *map(list, views)) == (["a"], ["a"], [1], [("a", 1)])
    assert (dict(found), len(found), list(found)) == ({"b": 2, "c": 3}, 2, ["b", "c"])
    with pytest.raises(KeyError):
        del found["a"]


def test_an_entry_is_removed_only_if_it_is_unchanged():
    earlier, later = object(), object()
    found = SnapshotMap()
    found["name"] = earlier
    found.change({"name": later}, {})
    found.change({}, {"name": earlier, "other": earlier})
    assert dict(found) == {"name": later}
    found.change({}, {"name": later})
    assert not found
