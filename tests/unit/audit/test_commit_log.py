"""The commit log of a Parquet table: renumbered, and killed at every step of it."""

import pytest

from klamm_spark.errors import LakeError
from klamm_spark.lake import layout as lake
from klamm_spark.lake.layout import Lake, committed_files, last_batch, read_log, renumber_log, restore_log, write_log

STEPS = ("write_log", "move_file", "remove_tree")


class Killed(BaseException):
    pass


@pytest.fixture
def table(tmp_path):
    """A table whose log has a `.compact` file and batches after it."""
    log = tmp_path / "events" / lake.COMMIT_LOG
    log.mkdir(parents=True)
    for batch, names in {"3.compact": "abc", "4": "d", "5": "e"}.items():
        write_log(log / batch, [{"path": (tmp_path / "events" / name).as_uri(), "size": 1} for name in names])
    return tmp_path / "events"


def test_a_renumbered_log_has_the_same_files_and_ends_with_the_batch(table):
    files = committed_files(table)
    renumber_log(table, 2)
    assert committed_files(table) == files
    assert sorted(path.name for path in (table / lake.COMMIT_LOG).iterdir()) == ["0", "1", "2"]
    assert read_log(table / lake.COMMIT_LOG / "2") == []
    assert [path.name for path in table.iterdir()] == [lake.COMMIT_LOG]


def test_no_entry_is_lost_wherever_it_is_killed(table, monkeypatch):
    files = committed_files(table)
    for last_step in range(100):
        steps = iter(range(last_step))

        def killed_at(function, steps=steps):
            def call(*arguments):
                if next(steps, None) is None:
                    raise Killed
                return function(*arguments)

            return call

        with monkeypatch.context() as patch:
            for name in STEPS:
                patch.setattr(lake, name, killed_at(getattr(lake, name)))
            try:
                renumber_log(table, 1)
            except Killed:
                pass
            else:
                break
        restore_log(table)
        assert committed_files(table) == files
        assert [path.name for path in table.iterdir()] == [lake.COMMIT_LOG]
    assert last_step > 4


def _begin(lake_, offsets):
    folder = lake_.ship_checkpoint / "offsets"
    folder.mkdir(parents=True, exist_ok=True)
    for number in offsets:
        (folder / str(number)).write_text('v1\n{"batchWatermarkMs":0}\n{"logOffset":0}')


@pytest.mark.parametrize(("offsets", "sound"), [((), False), ((3, 4), False), ((4, 5), True), ((5, 6), True)])
def test_a_checkpoint_must_know_all_batches_of_the_log(table, offsets, sound):
    one = Lake(table.parent, "parquet")
    _begin(one, offsets)
    assert (one.checkpoint_problem() is None) == sound
    if sound:
        one.require_checkpoint()
    else:
        with pytest.raises(LakeError, match=r"was lost or is an old copy.*run klamm audit recover$"):
            one.require_checkpoint()


def test_a_new_lake_needs_no_checkpoint(tmp_path):
    Lake(tmp_path, "parquet").require_checkpoint()
    Lake(tmp_path, "delta").require_checkpoint()


def test_the_last_batch_of_a_log_may_be_a_compact_file(table):
    assert last_batch(table / lake.COMMIT_LOG) == 5
    (table / lake.COMMIT_LOG / "10.compact").touch()
    assert last_batch(table / lake.COMMIT_LOG) == 10
    assert last_batch(table / "nowhere") is None
