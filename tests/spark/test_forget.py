"""`forget` deletes only rows that a record names, whatever other commands do at the same time."""

import pytest

from klamm_spark.errors import LakeError
from klamm_spark.lake import forget, verify
from klamm_spark.lake.files import files_of
from klamm_spark.lake.layout import Lake
from klamm_spark.settings.spark import Pipeline
from klamm_spark.spool.signatures import write_key
from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.conftest import settings_of
from tests.spark.sealed_lake import HOUR_US, START_US
from tests.spark.sessions import table_of
from tests.spark.test_ship_states import kill_at

UNTIL_US = START_US + HOUR_US


class Place:
    """A spool of one server, its lake, and a key."""

    def __init__(self, folder, ship):
        self.spool, self.lake, self.key = folder / "spool", Lake(folder / "lake"), folder / "key"
        self.settings = settings_of(self.lake.root)
        self._ship, self._seqs = ship, 0
        write_key(self.key)

    def write(self, **more):
        write_sample_spool(self.spool, sample_events(20, first_seq=self._seqs, **more))
        self._seqs += 20

    def ship(self):
        self._ship(self.spool, self.settings)

    def forget(self):
        return forget.run(Pipeline(None, self.settings), before_us=UNTIL_US, key=self.key, say=lambda line: None)

    def verified(self):
        said = []
        return verify.run(None, Pipeline(None, self.settings), say=said.append), said

    def rows(self):
        return table_of(self.lake).num_rows


@pytest.fixture
def place(ship, tmp_path):
    place = Place(tmp_path, ship)
    place.write()
    place.ship()
    return place


def test_rows_of_an_unreadable_file_are_not_deleted(place):
    place.write()
    place.ship()
    file = files_of(place.lake)[0].path
    with open(file, "rb") as source:
        whole = source.read()
    with open(file, "wb") as target:
        target.write(whole[:100])
    with pytest.raises(LakeError, match=f"^{file} cannot be read: "):
        place.forget()
    with open(file, "wb") as target:
        target.write(whole)
    assert place.rows() == 40
    assert place.forget() == 0
    # The command did not name the key.
    assert place.verified()[0] == 4, place.verified()


def test_rows_that_are_shipped_meanwhile_are_not_deleted_without_a_record(place, monkeypatch):
    """The rows are of the same hour, and come after the records and before the deletion. The next run deletes them."""
    record = forget._record

    def then_ship(*given):
        count = record(*given)
        place.write()
        place.ship()
        return count

    with monkeypatch.context() as patch:
        patch.setattr(forget, "_record", then_ship)
        with pytest.raises(LakeError, match="run klamm audit forget again"):
            place.forget()
    assert place.rows() == 40
    assert place.forget() == 0
    assert place.verified()[0] == 4, place.verified()


def test_rows_that_are_compacted_meanwhile_are_deleted_by_the_next_run(place, monkeypatch):
    from klamm_spark.lake import compact

    place.write()
    place.ship()
    record = forget._record

    def then_compact(*given):
        count = record(*given)
        assert compact.run(Pipeline(None, place.settings), keep_hours=168, say=lambda line: None) == 0
        return count

    with monkeypatch.context() as patch:
        patch.setattr(forget, "_record", then_compact)
        with pytest.raises(LakeError, match="run klamm audit forget again"):
            place.forget()
    assert place.rows() == 40
    assert place.forget() == 0
    assert place.verified()[0] == 4, place.verified()


def test_rows_without_a_seal_are_not_deleted(place, ship, monkeypatch):
    place.write()
    kill_at(monkeypatch, "before the ledger", ship, place.spool, place.settings)
    said = "-00000000000000000020 has no seal in the lake yet: run klamm audit ship, then forget$"
    with pytest.raises(LakeError, match=said):
        place.forget()
    assert place.rows() == 40
    place.ship()
    assert place.forget() == 0
    assert place.verified()[0] == 4, place.verified()
