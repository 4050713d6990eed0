"""Unreadable seals and open segments are put aside and reported at the start, and do not prevent it."""

import errno
import json
import os

import pytest

from klamm_spark.spool.chain import read_folder
from klamm_spark.spool.folder import SpoolError
from klamm_spark.spool.layout import NO_CHAIN, open_segments, sealed_segments
from klamm_spark.spool.losses import Deleted, Recovered
from tests.unit.audit.test_spool import Writer, aged, seals, seqs, with_a_sealed_segment


@pytest.fixture
def writer(tmp_path):
    return Writer(tmp_path / "node-1")


def two_segments(folder, **settings):
    """Write two sealed segments of two events each, and stop in order."""
    writer = with_a_sealed_segment(folder, **settings)
    writer.write(2)
    writer.spool.close()
    return writer


def edited(**changes):
    return lambda data: json.dumps(json.loads(data) | changes).encode()


@pytest.mark.parametrize("compression", ["none", "zstd", "gzip"])
@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda data: b"", "Expecting value"),
        (lambda data: data[:50], "Unterminated string"),
        (lambda data: b"\x80garbage", "codec can't decode"),
        (lambda data: b"[" * 100_000, ""),
        (lambda data: b"[]", "after ** must be a mapping"),
        (lambda data: b'{"index":1}', "missing"),
        (edited(index="1"), "wrong type"),
        (edited(chain=None), "wrong type"),
        (edited(sealed_time_us=None), "wrong type"),
        (edited(first_seq=0), "it is the seal of"),
        (edited(segment="another"), "it is the seal of another"),
    ],
)
def test_a_newest_seal_that_is_unreadable_is_put_aside_and_reported(tmp_path, caplog, spoil, why, compression):
    writer = two_segments(tmp_path / "n", compression=compression)
    boot = writer.spool.boot
    older, newest = sorted(writer.folder.rglob("*.seal"))
    spoilt = spoil(newest.read_bytes())
    newest.write_bytes(spoilt)
    aside = newest.with_name(newest.name + ".unreadable")
    (recovered,) = writer.start("11111111")
    assert (recovered.boot, recovered.last_seq, recovered.torn_bytes) == (boot, 3, 0)
    assert recovered.unreadable.startswith(f"{aside.name}: ")
    assert why in recovered.unreadable
    assert f"{newest} cannot be read" in caplog.text
    assert (aside.read_bytes(), newest.exists(), writer.spool.unreadable_count) == (spoilt, False, 1)
    writer.write()
    writer.spool.close()
    first, second = seals(writer.folder)
    assert (first.segment, second.index, second.previous_chain) == (older.stem, 1, first.chain)
    behind = sealed_segments(writer.folder)[1]
    # The events after the seal stay, but nothing proves them.
    found = read_folder(writer.folder).breaks
    assert found == [f"{behind} was inserted, or its seal was removed: no seal can be read"]
    assert writer.start("22222222") == []
    assert writer.spool.unreadable_count == 0


def test_a_seal_that_may_not_be_read_is_put_aside_and_the_chain_starts_again_if_it_was_the_only_one(writer):
    writer.start()
    boot = writer.spool.boot
    writer.write(2)
    writer.spool.close()
    (path,) = writer.folder.rglob("*.seal")
    writer.files.forbidden = {path.name}
    assert writer.start("11111111") == [Recovered(boot, 1, 0, f"{path.name}.unreadable: Permission denied")]
    assert writer.spool.boot > boot
    writer.write()
    writer.spool.close()
    (seal,) = seals(writer.folder)
    assert (seal.index, seal.previous_chain) == (0, NO_CHAIN)


def test_a_boot_that_wrote_nothing_has_not_reported_what_it_put_aside(tmp_path):
    writer = two_segments(tmp_path / "n")
    boot = writer.spool.boot
    newest = max(writer.folder.rglob("*.seal"))
    newest.write_bytes(b"garbage")
    writer.start("11111111")
    writer.die()
    again = Recovered(boot, 3, 0, f"{newest.name}.unreadable: put aside by an earlier start")
    assert writer.start("22222222") == [again]
    writer.write()
    second = writer.spool.boot
    writer.die()
    assert writer.start("33333333") == [Recovered(second, 0, 0)]


def test_all_events_of_a_segment_are_in_doubt_if_its_seal_is_also_unreadable(tmp_path):
    writer = two_segments(tmp_path / "n")
    boot = writer.spool.boot
    newest = max(writer.folder.rglob("*.seal"))
    writer.files.forbidden = {newest.name, newest.with_suffix(".jsonl").name}
    assert writer.start("11111111") == [Recovered(boot, 1, 0, f"{newest.name}.unreadable: Permission denied")]


def test_an_open_segment_that_cannot_be_read_is_put_aside_and_reported(tmp_path, caplog):
    writer = with_a_sealed_segment(tmp_path / "n")
    boot = writer.spool.boot
    writer.write(3)
    (path,) = open_segments(writer.folder)
    writer.die()
    writer.files.forbidden = {path.name}
    assert writer.start("11111111") == [Recovered(boot, 1, 0, f"{path.name}.unreadable: Permission denied")]
    assert f"{path} cannot be read (Permission denied)" in caplog.text
    assert seqs(path.with_name(path.name + ".unreadable")) == [2, 3, 4]
    assert open_segments(writer.folder) == []
    writer.write()
    writer.spool.close()
    assert [seal.index for seal in seals(writer.folder)] == [0, 1]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_temporarily_unreadable_file_stays_where_it_is(tmp_path, number):
    """Such an error says nothing about the file, so the start fails. The next start reads the file."""
    writer = with_a_sealed_segment(tmp_path / "n")
    boot = writer.spool.boot
    writer.write(3)
    (path,) = open_segments(writer.folder)
    writer.die()
    read = writer.files.read

    def refuse(each):
        if each == path:
            raise OSError(number, os.strerror(number))
        return read(each)

    writer.files.read = refuse
    with pytest.raises(OSError, match=os.strerror(number)):
        writer.start("11111111")
    assert open_segments(writer.folder) == [path]
    del writer.files.read
    assert writer.start("22222222") == [Recovered(boot, 4, 0)]
    assert sum(len(seqs(each)) for each in sealed_segments(writer.folder)) == 5


def test_new_folders_of_a_spool_are_durable(tmp_path):
    writer = Writer(tmp_path / "a" / "spool" / "n")
    synced = []
    writer.files.sync_directory = synced.append
    writer.start()
    for folder in (tmp_path, tmp_path / "a", tmp_path / "a" / "spool"):
        assert folder in synced


def test_an_unreadable_open_segment_leaves_its_sealed_copy_complete(tmp_path):
    writer = two_segments(tmp_path / "n")
    boot, newest = writer.spool.boot, max(sealed_segments(writer.folder))
    path = writer.folder / newest.with_suffix(".open").name
    path.write_bytes(newest.read_bytes())
    writer.files.forbidden = {path.name}
    assert writer.start("11111111") == [Recovered(boot, 1, 0, f"{path.name}.unreadable: Permission denied")]
    assert seqs(newest) == [2, 3]
    assert len(seals(writer.folder)) == 2


@pytest.mark.parametrize("garbage", [b"\xff\0\n\xfe\n", b'{"seq": Infinity}\n', b"[" * 100_000 + b"\n", b"5\n6\n"])
def test_an_open_segment_of_garbage_is_put_aside(writer, garbage):
    writer.start()
    boot = writer.spool.boot
    writer.write()
    (path,) = open_segments(writer.folder)
    writer.die()
    path.write_bytes(garbage)
    assert writer.start("11111111") == [Recovered(boot, None, 0, f"{path.name}.unreadable: there is no event in it")]
    assert path.with_name(path.name + ".unreadable").read_bytes() == garbage
    assert sealed_segments(writer.folder) == open_segments(writer.folder) == []


def test_an_unreadable_seal_of_a_crashed_boot_is_not_reported_as_a_second_loss(tmp_path):
    writer = with_a_sealed_segment(tmp_path / "n")
    boot = writer.spool.boot
    writer.write()
    writer.die()
    (path,) = writer.folder.rglob("*.seal")
    path.write_bytes(b"garbage")
    assert writer.start("11111111") == [Recovered(boot, 2, 0)]
    assert writer.spool.unreadable_count == 1


def test_other_files_do_not_count_as_seals(writer):
    writer.start()
    writer.write()
    writer.spool.close()
    (writer.folder / "zebra.seal").write_bytes(b"lives in the sea")
    assert writer.start("11111111") == []
    writer.write()
    writer.spool.close()
    assert (writer.folder / "zebra.seal").exists()


def put_aside(folder, padding=0, **settings):
    """Return a writer, and the path of an unreadable open segment from event 2 on that it has put aside."""
    writer = with_a_sealed_segment(folder, **settings)
    writer.write(padding=padding)
    (path,) = open_segments(writer.folder)
    writer.die()
    writer.files.forbidden = {path.name}
    writer.clock.advance_ms(10)
    wall_s = writer.clock.wall_us() / 1e6
    os.utime(path, (wall_s, wall_s))
    first = writer.spool.boot
    writer.start("11111111")
    return writer, first, path.with_name(path.name + ".unreadable")


def test_files_put_aside_count_toward_the_size_and_are_deleted_first(tmp_path, caplog):
    writer, first, aside = put_aside(tmp_path / "n", padding=2000, retention_bytes=4000)
    assert writer.spool.size_bytes == sum(path.stat().st_size for path in (*sealed_segments(writer.folder), aside))
    assert writer.tick() == []
    writer.write(padding=1000)
    writer.clock.advance_ms(10)
    assert writer.tick() == []
    writer.write(padding=1000)
    writer.clock.advance_ms(10)
    assert writer.tick() == [
        Deleted(first, 0, 1, 2, "retention_bytes"),
        Deleted(first, 2, None, None, "retention_bytes"),
    ]
    assert not aside.exists()
    assert "2 segments or files put aside deleted (retention_bytes)" in caplog.text
    assert writer.spool.size_bytes == sum(path.stat().st_size for path in sealed_segments(writer.folder))
    assert len(sealed_segments(writer.folder)) == 2


def test_the_age_of_a_file_put_aside_begins_when_it_was_written(tmp_path):
    writer, first, aside = put_aside(tmp_path / "n", retention_ms=60_000)
    writer.clock.advance_ms(59_995)
    assert writer.tick() == [Deleted(first, 0, 1, 2, "retention_ms")]
    assert aside.exists()
    writer.clock.advance_ms(60_001)
    assert writer.tick() == [Deleted(first, 2, None, None, "retention_ms")]
    assert not aside.exists()
    assert writer.spool.size_bytes == 0


def test_the_deletion_of_a_seal_that_was_put_aside_is_only_logged(tmp_path, caplog):
    writer = two_segments(tmp_path / "n", retention_ms=60_000)
    boot = writer.spool.boot
    newest = max(writer.folder.rglob("*.seal"))
    newest.write_bytes(b"garbage")
    wall_s = writer.clock.wall_us() / 1e6
    for path in (newest, newest.with_suffix(".jsonl")):
        os.utime(path, (wall_s, wall_s))
    writer.start("11111111")
    writer.clock.advance_ms(60_001)
    assert writer.tick() == [Deleted(boot, 0, 1, 2, "retention_ms"), Deleted(boot, 2, None, None, "retention_ms")]
    assert list(writer.folder.rglob("*.unreadable")) == []
    assert "3 segments or files put aside deleted (retention_ms)" in caplog.text


def test_a_segment_without_a_seal_ends_where_the_next_one_begins_even_if_files_of_it_were_put_aside(tmp_path):
    writer = Writer(tmp_path / "n", segment_age_ms=10, retention_ms=60_000)
    writer.start()
    for _ in range(2):
        writer.write(2)
        writer.clock.advance_ms(10)
        writer.spool.tick()
    boot, (first, _) = writer.spool.boot, sealed_segments(writer.folder)
    writer.spool.close()
    wall_s = writer.clock.wall_us() / 1e6
    first.with_suffix(".seal").rename(first.with_suffix(".seal.unreadable"))
    for path in (first, first.with_suffix(".seal.unreadable")):
        os.utime(path, (wall_s, wall_s))
    writer.start("11111111")
    writer.clock.advance_ms(60_001)
    assert writer.tick() == [Deleted(boot, 0, 1, None, "retention_ms"), Deleted(boot, 2, 3, 2, "retention_ms")]


def test_files_put_aside_stop_a_full_spool_until_they_are_removed_by_hand(tmp_path):
    writer, _, aside = put_aside(tmp_path / "n", padding=2000, retention_bytes=2500, on_limit="stop")
    with pytest.raises(SpoolError, match="retention_bytes = 2500"):
        writer.write(padding=1000)
    aside.unlink()
    writer.write(padding=1000)


def test_a_crash_is_reported_once_even_if_the_reporting_boot_crashes_before_its_first_seal(tmp_path):
    writer = Writer(tmp_path / "n", segment_age_ms=10)
    aged(writer, 1)
    first = writer.spool.boot
    writer.die()
    assert writer.start("11111111") == [Recovered(first, 0, 0)]
    second = writer.spool.boot
    writer.write()
    writer.die()
    assert writer.start("22222222") == [Recovered(second, 0, 0)]
