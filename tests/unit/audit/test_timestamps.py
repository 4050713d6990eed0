"""Tests of time stamps of a log's checkpoints: `ship` gets them from an authority, `verify` needs its certificates."""

import json
import random
import shutil
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from klamm import ConfigError
from klamm.config import load_settings
from klamm_spark.errors import LakeError
from klamm_spark.lake import log_check
from klamm_spark.lake.anchors import read_anchors
from klamm_spark.lake.log_check import check_log
from klamm_spark.lake.seal_log import open_log
from klamm_spark.settings.spark import SparkSettings
from klamm_spark.tlog.notes import Checkpoint
from klamm_spark.tlog.tiles import Tiles
from klamm_spark.tlog.timestamps import Stamp
from tests.peers.time_authority import OPENSSL, TimeAuthority, served
from tests.unit.audit.log_attacks import LogAttack
from tests.unit.audit.logged_lake import LoggedLake

pytest.importorskip("pyarrow")
pytest.importorskip("rfc3161_client")
pytestmark = pytest.mark.skipif(OPENSSL is None, reason="needs the program openssl")


@pytest.fixture
def place(tmp_path):
    place = LoggedLake(tmp_path / "place")
    with closing(place.witness):
        yield place


@pytest.fixture
def authority(tmp_path):
    return TimeAuthority(tmp_path / "authority")


@pytest.fixture
def stamped(place, authority):
    """Return `stamped(segments)`.

    The lake grows by this number of segments, and a start of `ship` adds them to the log.
    """

    def grow(segments, interval_ms=0):
        place.grow(segments)
        with served(authority) as url:
            settings = settings_of(
                place,
                authority,
                log_key=place.folder / "keys" / "log",
                log_origin=place.log_signer.key.name,
                timestamps=url,
                timestamp_interval_ms=interval_ms,
            )
            return open_log(place.lake, settings, place.said.append, None)

    return grow


def settings_of(place, authority, **more):
    return SparkSettings(lake=place.folder / "lake", timestamp_roots=authority.root, **more)


def check(place, authority):
    return check_log(place.lake, settings_of(place, authority))


def names_of(place):
    return sorted(path.name for path in (place.log_folder / "stamps").iterdir())


def test_a_stamped_checkpoint_pins_its_entries_and_their_time_without_any_other_file(stamped, place, authority):
    stamped(2)
    stamped(1)
    assert names_of(place) == ["2", "2.tsr", "3", "3.tsr"]
    found = check(place, authority)
    assert (found.breaks, found.behind) == ([], [])
    assert "log: 3 entries existed at 20" in "\n".join(found.notes)
    assert found.notes[-2].endswith("by 2 time stamps")


def test_a_log_that_grows_while_it_is_read_is_sound(stamped, place, authority, monkeypatch):
    stamped(2)
    of_tiles = log_check._entries

    def grow(tiles, breaks):
        monkeypatch.setattr(log_check, "_entries", of_tiles)
        stamped(1)
        return of_tiles(tiles, breaks)

    monkeypatch.setattr(log_check, "_entries", grow)
    assert check(place, authority).breaks == []


def test_openssl_takes_a_stamp_for_its_checkpoint_and_for_no_other(stamped, place, authority):
    stamped(2)
    stamped(1)
    two, three = (place.log_folder / "stamps" / name for name in "23")
    assert authority.verifies(two, two.with_suffix(".tsr"))
    assert not authority.verifies(three, two.with_suffix(".tsr"))


def test_stamps_of_an_earlier_authority_are_proven_by_its_certificates(stamped, place, authority, tmp_path):
    stamped(1)
    other = TimeAuthority(tmp_path / "other")
    old, authority.reply = authority.root.read_bytes(), other.reply
    authority.root.write_bytes(old + other.root.read_bytes())
    stamped(1)
    assert names_of(place) == ["1", "1.tsr", "2", "2.tsr"]
    assert check(place, authority).breaks == []
    authority.root.write_bytes(other.root.read_bytes())
    (line,) = check(place, authority).breaks
    assert line.startswith(f"the time stamp {place.log_folder / 'stamps' / '1.tsr'} is none of its checkpoint: ")


def test_a_log_that_was_written_again_with_all_keys_is_not_the_stamped_one(stamped, place, authority):
    stamped(3)
    attack = LogAttack(place.lake, place.folder, (place.server, place.log_signer), random.Random(1), pinned=3)
    stamps = shutil.copytree(place.log_folder / "stamps", place.folder / "kept")
    attack.rebuild(attack.entries()[1:] + attack.entries()[:1])
    shutil.copytree(stamps, place.log_folder / "stamps")
    (line,) = check(place, authority).breaks
    assert "forked or rewritten between its entries 0 and 3" in line
    assert line.endswith(f"{place.log_folder / 'stamps' / '3.tsr'}")
    attack.rebuild(attack.entries()[:2])
    shutil.copytree(stamps, place.log_folder / "stamps")
    assert any("was rolled back: it has 2 entries" in line for line in check(place, authority).breaks)


def test_old_seals_that_are_stamped_only_now_are_named(stamped, place, authority):
    """The seals are from a day long ago, and a stamp cannot be from that day."""
    stamped(2)
    (line,) = (line for line in check(place, authority).notes if "of its seal" in line)
    assert int(line.partition("within ")[2].partition(" days")[0]) > 100


@pytest.mark.parametrize("change", ["another authority", "another checkpoint", "garbage", "no checkpoint"])
def test_an_invalid_stamp_is_named(stamped, place, authority, tmp_path, change):
    stamped(2)
    path = place.log_folder / "stamps" / "2.tsr"
    if change == "another authority":
        authority = TimeAuthority(tmp_path / "other")
    elif change == "another checkpoint":
        note = path.with_suffix("")
        note.write_bytes(note.read_bytes().replace(b"\n2\n", b"\n1\n"))
    elif change == "garbage":
        path.write_bytes(path.read_bytes()[:-100])
    else:
        path.with_suffix("").unlink()
    (line,) = check(place, authority).breaks
    assert line.startswith(f"the time stamp {path} is none of its checkpoint: ")


def test_removed_stamps_are_reported(stamped, place, authority):
    stamped(2)
    shutil.rmtree(place.log_folder / "stamps")
    assert check(place, authority).behind == ["log: it has no time stamp"]
    (place.log_folder / "checkpoint").unlink()
    assert "was taken away or changed" in check(place, authority).breaks[0]


def test_a_lake_without_a_log_is_behind_its_time_stamps_unless_one_was_kept(place, authority):
    checkpoint = str(place.grow(1).checkpoint)
    shutil.rmtree(place.log_folder)
    found = check(place, authority)
    assert (found.breaks, found.behind) == ([], [f"log: there is none at {place.log_folder}, so it has no time stamp"])
    anchors = place.folder / "anchors"
    anchors.write_text(json.dumps({"checkpoint": checkpoint}) + "\n")
    found = check_log(place.lake, settings_of(place, authority), anchors=read_anchors(anchors))
    assert "was taken away or changed" in found.breaks[0]


def test_stamps_that_show_that_the_log_became_shorter_are_named(stamped, place, authority):
    """An older copy was restored, and grew to the same number of entries. Only the times show this."""
    stamped(2)
    older = shutil.copytree(place.log_folder, place.folder / "older")
    stamped(1)
    stamps = place.log_folder / "stamps"
    for name in ("2", "2.tsr"):
        (stamps / name).unlink()
    checkpoint = Checkpoint.parse((older / "checkpoint").read_bytes())
    times = [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)]
    kept = Stamp(stamps / "3.tsr", Checkpoint.parse((stamps / "3").read_bytes()), times[0])
    again = Stamp(stamps / "2.tsr", checkpoint, times[1])
    (line,) = log_check._out_of_order([kept, again])
    assert line.startswith(
        f"the log was rolled back: it had 3 entries at {times[0].isoformat()} by {kept.path}, and 2 at "
    )
    assert list(log_check._out_of_order([again._replace(time=times[0]), kept._replace(time=times[1])])) == []
    for step_s, lines in ((0, 0), (60, 0), (61, 1)):
        later = again._replace(time=times[0] + timedelta(seconds=step_s))
        assert len(list(log_check._out_of_order([kept, later]))) == lines, "a clock may step back a little"


def test_ship_continues_without_the_authority_and_asks_it_again(stamped, place, authority):
    authority.is_away = True
    stamped(2)
    assert place.said[-1] == "2 entries of the log have no time stamp: HTTP status 503"
    assert Tiles(place.log_folder, 2).tree.root(2)
    authority.is_away = False
    stamped(0)
    assert names_of(place) == ["2", "2.tsr"]


def test_a_response_of_another_authority_is_not_kept(stamped, place, authority, tmp_path):
    other = TimeAuthority(tmp_path / "other")
    other.root = authority.root
    authority.reply = other.reply
    stamped(1)
    assert place.said[-1].startswith("1 entries of the log have no time stamp: ")
    assert not (place.log_folder / "stamps").exists()


def test_no_stamp_is_requested_before_the_interval_has_passed(stamped, place):
    stamped(1)
    stamped(1, interval_ms=3_600_000)
    assert names_of(place) == ["1", "1.tsr"]


def test_a_driver_that_is_killed_between_checkpoint_and_stamp_leaves_a_sound_log(stamped, place, authority):
    stamped(1)
    (place.log_folder / "stamps" / "1.tsr").unlink()
    assert check(place, authority).breaks == []
    stamped(0)
    found = check(place, authority)
    assert (found.breaks, found.behind) == ([], [])


def test_time_stamps_without_a_log_are_refused(place, authority):
    with pytest.raises(LakeError, match="timestamps need log_key"):
        open_log(place.lake, settings_of(place, authority, timestamps="http://127.0.0.1:1"), place.said.append, None)


def test_settings_with_which_stamps_cannot_be_verified_are_refused(place, authority, tmp_path):
    more = {"log_key": place.folder / "keys" / "log", "timestamps": "http://127.0.0.1:1"}
    with pytest.raises(LakeError, match="timestamps need timestamp_roots"):
        open_log(place.lake, SparkSettings(lake=place.folder / "lake", **more), place.said.append, None)
    (tmp_path / "no.pem").write_text("no certificate")
    settings = SparkSettings(lake=place.folder / "lake", timestamp_roots=tmp_path / "no.pem", **more)
    with pytest.raises(LakeError, match="cannot be read"):
        open_log(place.lake, settings, place.said.append, None)
    file = tmp_path / "klamm.toml"
    file.write_text('[audit.spark]\ntimestamps = "ftp://x"\n')
    with pytest.raises(ConfigError, match="must be a URL of HTTP"):
        load_settings(file, ("audit", "spark"), SparkSettings)
