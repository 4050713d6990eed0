"""Tests of the spool: segments, seals, limits and recovery. The disk can be full, and the clock stands still."""

import contextlib
import errno
import hashlib
import json
import os

import cramjam
import pytest

from klamm.testing import ManualClock
from klamm_spark.settings.audit import AuditSettings
from klamm_spark.spool.folder import SpoolError
from klamm_spark.spool.layout import NO_CHAIN, Seal, chain_of, open_segments, parse_name, sealed_segments
from klamm_spark.spool.losses import Recovered, Unsynced
from klamm_spark.spool.writer import Spool
from klamm_spark.storage.files import SpoolFiles
from klamm_spark.storage.filesystems import SPOOL_IS_A_FILE


class BadDisk(SpoolFiles):
    """A disk that accepts `room` more bytes.

    Calls in `broken` fail, and files whose names are in `forbidden` cannot be read.
    """

    def __init__(self):
        self.room = 1 << 40
        self.forbidden = set()
        self.broken = set()
        self.fsyncs = 0

    def write(self, descriptor, data):
        if self.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = super().write(descriptor, data[: self.room])
        self.room -= written
        return written

    def read(self, path):
        if path.name in self.forbidden:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return super().read(path)

    def fsync(self, descriptor):
        self._check("fsync")
        self.fsyncs += 1
        super().fsync(descriptor)

    def rename(self, source, target):
        self._check("rename")
        super().rename(source, target)

    def sync_directory(self, path):
        self._check("sync_directory")
        super().sync_directory(path)

    def remove(self, path):
        self._check("remove")
        super().remove(path)

    def stat(self, path):
        self._check("stat")
        return super().stat(path)

    def _check(self, call):
        if call in self.broken:
            raise OSError(errno.EIO, "broken")


class Writer:
    """A spool under test, with one event per write."""

    def __init__(self, folder, files=None, **settings):
        self.clock = ManualClock()
        self.files = files or BadDisk()
        self.settings = AuditSettings(
            spool=folder.parent, **{"delete_unshipped": True, "compression": "none", **settings}
        )
        self.folder = folder
        self.seq = 0
        self.spool = None

    def start(self, boot="00000000"):
        self.seq = 0
        self.spool = Spool(self.folder, self.settings, self.clock, self.files)
        return self.spool.open(boot)

    def write(self, count=1, padding=0):
        for _ in range(count):
            event = {"seq": self.seq, "boot": self.spool.boot, "time_us": self.clock.wall_us(), "x": "." * padding}
            line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
            self.spool.write(line, self.seq, self.seq, 1)
            self.seq += 1

    def tick(self):
        self.spool.tick()
        return self.spool.take_losses()

    def die(self):
        """Abandon the spool as after `kill -9`: written bytes stay, and nothing else happens."""
        if self.spool._segment is not None:
            self.spool._segment.close()
        os.close(self.spool._lock)


def with_a_sealed_segment(folder, events=2, **settings):
    """Return a writer that continues after a first, sealed segment."""
    writer = Writer(folder, segment_age_ms=10, **settings)
    writer.start()
    writer.write(events)
    writer.clock.advance_ms(10)
    writer.spool.tick()
    return writer


@pytest.fixture
def writer(tmp_path):
    return Writer(tmp_path / "node-1")


def seals(folder):
    return [Seal.read(path) for path in sorted(folder.rglob("*.seal"))]


def seqs(path):
    return [json.loads(line)["seq"] for line in path.read_bytes().splitlines()]


def fail():
    raise OSError(errno.EIO, "broken")


def aged(writer, count):
    writer.start()
    for _ in range(count):
        writer.write()
        writer.clock.advance_ms(10)
        writer.spool.tick()
    return sealed_segments(writer.folder)


def test_a_segment_is_open_until_it_is_sealed_and_then_has_a_seal(writer):
    assert writer.start() == []
    writer.write(3)
    (path,) = open_segments(writer.folder)
    assert parse_name(path.name) == (writer.spool.boot, 0)
    assert sealed_segments(writer.folder) == []
    writer.spool.close()
    assert open_segments(writer.folder) == []
    (path,) = sealed_segments(writer.folder)
    (seal,) = seals(writer.folder)
    assert seqs(path) == [0, 1, 2]
    assert (seal.segment, seal.first_seq, seal.last_seq, seal.events) == (path.stem, 0, 2, 3)
    assert (seal.size_bytes, seal.sha256) == (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
    assert (seal.final, seal.clean, seal.torn_bytes) == (True, True, 0)


def test_size_and_age_seal_a_segment(tmp_path):
    writer = Writer(tmp_path / "n", segment_bytes=1024, segment_age_ms=5000)
    writer.start()
    writer.write(2, padding=600)
    writer.spool.tick()
    assert len(sealed_segments(writer.folder)) == 1
    writer.write()
    writer.clock.advance_ms(4999)
    writer.spool.tick()
    assert len(sealed_segments(writer.folder)) == 1
    writer.clock.advance_ms(1)
    writer.spool.tick()
    assert [parse_name(path.name).first_seq for path in sealed_segments(writer.folder)] == [0, 2]


def test_seals_make_a_chain_over_segments_and_boots(tmp_path):
    writer = Writer(tmp_path / "n", segment_age_ms=10)
    for boot in ("aaaaaaaa", "bbbbbbbb"):
        writer.start(boot)
        for _ in range(2):
            writer.write()
            writer.clock.advance_ms(10)
            writer.spool.tick()
        writer.spool.close()
    chain = NO_CHAIN
    for index, seal in enumerate(seals(writer.folder)):
        assert (seal.index, seal.previous_chain) == (index, chain)
        chain = chain_of(chain, seal.sha256, seal.lines_sha256)
        assert seal.chain == chain
    assert index == 3


def test_written_events_are_synced_within_the_interval(tmp_path):
    writer = Writer(tmp_path / "n", fsync_interval_ms=100)
    writer.start()
    writer.write()
    writer.spool.tick()
    assert writer.files.fsyncs == 0
    writer.clock.advance_ms(100)
    writer.spool.tick()
    assert writer.files.fsyncs == 1
    writer.clock.advance_ms(100)
    writer.spool.tick()
    assert writer.files.fsyncs == 1


def test_an_interval_of_zero_syncs_each_write(tmp_path):
    writer = Writer(tmp_path / "n", fsync_interval_ms=0)
    writer.start()
    writer.write(3)
    assert writer.files.fsyncs == 3


def test_after_a_crash_the_open_segment_is_sealed_and_the_loss_is_reported(writer):
    writer.start()
    boot = writer.spool.boot
    writer.write(3)
    writer.die()
    assert writer.start("11111111") == [Recovered(boot, 2, 0)]
    (path,) = sealed_segments(writer.folder)
    assert seqs(path) == [0, 1, 2]
    (seal,) = seals(writer.folder)
    assert (seal.clean, seal.final, seal.events) == (False, False, 3)


@pytest.mark.parametrize("tail", [b'{"seq": 3, "boo', b'{"seq": 3}', b"\0" * 500, b"\n", b"[]\n", b'{"boot":"x"}\n'])
def test_a_torn_tail_is_cut_and_counted(writer, tail):
    writer.start()
    boot = writer.spool.boot
    writer.write(3)
    (path,) = open_segments(writer.folder)
    writer.die()
    with path.open("ab") as file:
        file.write(tail)
    assert writer.start("11111111") == [Recovered(boot, 2, len(tail))]
    (sealed,) = sealed_segments(writer.folder)
    assert seqs(sealed) == [0, 1, 2]
    assert seals(writer.folder)[0].torn_bytes == len(tail)


def test_an_open_segment_without_a_whole_event_is_removed(writer):
    writer.start()
    boot = writer.spool.boot
    writer.write()
    (path,) = open_segments(writer.folder)
    writer.die()
    path.write_bytes(b'{"se')
    assert writer.start("11111111") == [Recovered(boot, None, 4)]
    assert sealed_segments(writer.folder) == open_segments(writer.folder) == []


def test_a_crash_between_two_segments_is_reported_too(tmp_path):
    writer = with_a_sealed_segment(tmp_path / "n")
    boot = writer.spool.boot
    writer.die()
    assert writer.start("11111111") == [Recovered(boot, 1, 0)]
    writer.write()
    writer.spool.close()
    assert writer.start("22222222") == []


def test_an_orderly_end_right_after_a_seal_is_no_crash(tmp_path):
    writer = with_a_sealed_segment(tmp_path / "n", events=1)
    writer.spool.close()
    assert writer.start("11111111") == []


def test_a_crash_between_seal_and_rename_leaves_the_chain_whole(tmp_path):
    writer = Writer(tmp_path / "n", segment_age_ms=10)
    writer.start()
    writer.write()
    writer.clock.advance_ms(10)
    files = writer.files
    rename = files.rename
    files.rename = lambda source, target: rename(source, target) if target.suffix == ".seal" else fail()
    with pytest.raises(SpoolError, match="broken"):
        writer.spool.tick()
    writer.die()
    files.rename = rename
    assert len(seals(writer.folder)) == len(open_segments(writer.folder)) == 1
    writer.start("11111111")
    writer.write()
    writer.spool.close()
    first, second = seals(writer.folder)
    assert (first.index, second.index, second.previous_chain) == (0, 1, first.chain)
    assert len(sealed_segments(writer.folder)) == 2


def test_a_full_disk_leaves_whole_lines_and_writing_continues_later(writer):
    writer.start()
    writer.write(2, padding=100)
    writer.files.room = 10
    with pytest.raises(SpoolError, match="No space left"):
        writer.write(padding=100)
    (path,) = open_segments(writer.folder)
    assert seqs(path) == [0, 1]
    writer.files.room = 1 << 40
    writer.write(padding=100)
    writer.spool.close()
    (sealed,) = sealed_segments(writer.folder)
    assert seqs(sealed) == [0, 1, 2]
    assert seals(writer.folder)[0].sha256 == hashlib.sha256(sealed.read_bytes()).hexdigest()


def test_a_segment_that_cannot_be_sealed_stays_open(tmp_path):
    writer = Writer(tmp_path / "n", segment_age_ms=10)
    writer.start()
    writer.write()
    writer.clock.advance_ms(10)
    writer.files.broken = {"rename"}
    with pytest.raises(SpoolError, match="broken"):
        writer.spool.tick()
    writer.write()
    writer.files.broken = set()
    writer.spool.tick()
    (sealed,) = sealed_segments(writer.folder)
    assert seqs(sealed) == [0, 1]


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("broken", ["sync_directory", "remove", "stat"])
def test_a_segment_with_its_final_name_never_changes_even_if_later_steps_fail(tmp_path, compression, broken):
    writer = Writer(tmp_path / "n", segment_age_ms=10, retention_ms=60_000, compression=compression)
    writer.start()
    writer.write()
    writer.clock.advance_ms(60_011)
    writer.spool.tick()
    # The seal before this one is removed too, so there is something to remove.
    writer.clock.advance_ms(60_011)
    writer.tick()
    writer.write(2)
    writer.clock.advance_ms(10)
    writer.files.broken = {broken}
    with contextlib.suppress(SpoolError):
        writer.spool.tick()
    (sealed,) = sealed_segments(writer.folder)
    before = sealed.read_bytes()
    try:
        writer.write()
    except SpoolError:
        assert broken == "sync_directory", "leftovers that cannot be removed do no harm"
    writer.files.broken = set()
    writer.write()
    writer.spool.close()
    assert sealed.read_bytes() == before
    assert open_segments(writer.folder) == []
    assert [seal.index for seal in seals(writer.folder)] == [1, 2]
    assert (seals(writer.folder)[0].first_seq, seals(writer.folder)[1].first_seq) == (1, 3)


def test_a_rename_that_raises_after_it_worked_counts_as_done(tmp_path):
    writer = Writer(tmp_path / "n", segment_age_ms=10)
    writer.start()
    writer.write()
    writer.clock.advance_ms(10)
    rename = writer.files.rename

    def unconfirmed(source, target):
        rename(source, target)
        if target.suffix == ".jsonl":
            fail()

    writer.files.rename = unconfirmed
    writer.spool.tick()
    writer.write()
    assert [parse_name(path.name).first_seq for path in sealed_segments(writer.folder)] == [0]
    assert [parse_name(path.name).first_seq for path in open_segments(writer.folder)] == [1]


@pytest.mark.parametrize("digit", ["\N{SUPERSCRIPT TWO}", "\N{ARABIC-INDIC DIGIT TWO}", "x"])
def test_a_name_with_other_digits_is_no_segment(digit):
    assert parse_name(f"aaaaaaaaaaaaaaaaaaaa-{'0' * 19}{digit}.jsonl") is None


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_events_of_an_open_segment_beyond_its_sealed_copy_are_kept(tmp_path, compression):
    writer = Writer(tmp_path / "n", compression=compression)
    writer.start()
    boot = writer.spool.boot
    writer.write(2)
    (path,) = open_segments(writer.folder)
    head = path.read_bytes()
    writer.spool.close()
    (sealed,) = sealed_segments(writer.folder)
    packed = sealed.read_bytes()
    tail = b"".join(b'{"seq":%d,"boot":"%s"}\n' % (seq, boot.encode()) for seq in (2, 3))
    path.write_bytes(head + tail + b'{"se')
    assert writer.start("11111111") == [Recovered(boot, 3, 4)]
    assert sealed.read_bytes() == packed
    assert open_segments(writer.folder) == []
    first, second = seals(writer.folder)
    assert (second.first_seq, second.last_seq, second.events) == (2, 3, 2)
    assert second.previous_chain == first.chain
    assert second.sha256 == hashlib.sha256(tail).hexdigest()


def test_a_compressed_copy_without_a_seal_is_made_again(tmp_path):
    writer = Writer(tmp_path / "n", compression="gzip")
    writer.start()
    boot = writer.spool.boot
    writer.write(2)
    (path,) = open_segments(writer.folder)
    writer.die()
    path.with_suffix(".jsonl.gz").write_bytes(b"nothing")
    assert writer.start("11111111") == [Recovered(boot, 1, 0)]
    (sealed,) = sealed_segments(writer.folder)
    assert len(bytes(cramjam.gzip.decompress(sealed.read_bytes())).splitlines()) == 2


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_no_temporary_file_looks_like_a_segment(tmp_path, compression):
    writer = Writer(tmp_path / "n", compression=compression)
    writer.start()
    writer.write()
    rename, left = writer.files.rename, []

    def killed(source, target):
        left.append((source.name, source.read_bytes()))
        rename(source, target)

    writer.files.rename = killed
    writer.spool.close()
    writer.files.rename = rename
    temporaries = [(name, data) for name, data in left if name.endswith(".tmp")]
    assert len(temporaries) == (1 if compression == "none" else 2)
    for name, data in temporaries:
        (writer.folder / name).write_bytes(data)
        assert parse_name(name) is None
        assert name.startswith("."), "Spark looks at no hidden file"
    before = sealed_segments(writer.folder)
    assert writer.start("11111111") == []
    assert list(writer.folder.glob("*.tmp")) == []
    assert sealed_segments(writer.folder) == before


def test_no_temporary_file_stays_on_a_full_disk(tmp_path):
    writer = Writer(tmp_path / "n", segment_age_ms=10)
    writer.start()
    writer.write()
    writer.clock.advance_ms(10)
    writer.files.room = 10
    with pytest.raises(SpoolError, match="No space left"):
        writer.spool.tick()
    assert list(writer.folder.glob("*.tmp")) == []


# ---- syncs that fail


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_after_a_failed_fsync_the_segment_is_abandoned_and_possible_losses_are_reported(tmp_path, compression):
    writer = Writer(tmp_path / "n", fsync_interval_ms=100, compression=compression)
    writer.start()
    writer.write()
    writer.clock.advance_ms(100)
    writer.spool.tick()
    writer.write(2)
    writer.clock.advance_ms(100)
    writer.files.broken = {"fsync"}
    with pytest.raises(SpoolError, match="fsync: broken"):
        writer.spool.tick()
    with pytest.raises(SpoolError, match="broken"):
        writer.write()
    writer.files.broken = set()
    writer.write()
    assert writer.tick() == [Unsynced(writer.spool.boot, 1, 2)]
    (seal,) = seals(writer.folder)
    assert (seal.first_seq, seal.last_seq, seal.events, seal.clean, seal.final) == (0, 2, 3, False, False)
    assert [parse_name(path.name).first_seq for path in open_segments(writer.folder)] == [3]
    writer.spool.close()
    assert writer.start("11111111") == []


def test_one_failed_fsync_is_not_tried_again_on_the_same_file(tmp_path):
    writer = Writer(tmp_path / "n", segment_age_ms=10)
    writer.start()
    writer.write()
    (opened,) = open_segments(writer.folder)
    inode = opened.stat().st_ino
    writer.clock.advance_ms(10)
    fsync = writer.files.fsync

    def once(descriptor):
        writer.files.fsync = fsync
        fail()

    writer.files.fsync = once
    with pytest.raises(SpoolError, match="fsync: broken"):
        writer.spool.tick()
    (sealed,) = sealed_segments(writer.folder)
    assert sealed.stat().st_ino != inode
    assert open_segments(writer.folder) == []
    assert writer.spool.take_losses() == [Unsynced(writer.spool.boot, 0, 0)]


def test_an_abandoned_segment_is_cut_where_the_disk_lost_its_events(tmp_path):
    writer = Writer(tmp_path / "n", fsync_interval_ms=100)
    writer.start()
    writer.write(3)
    (opened,) = open_segments(writer.folder)
    writer.clock.advance_ms(100)
    writer.files.broken = {"fsync"}
    with pytest.raises(SpoolError):
        writer.spool.tick()
    lines = opened.read_bytes().splitlines(keepends=True)
    opened.write_bytes(lines[0] + b"\0" * len(lines[1] + lines[2]))
    writer.files.broken = set()
    assert writer.tick() == [Unsynced(writer.spool.boot, 0, 2)]
    (sealed,) = sealed_segments(writer.folder)
    (seal,) = seals(writer.folder)
    assert sealed.read_bytes() == lines[0]
    assert (seal.last_seq, seal.torn_bytes) == (0, len(lines[1] + lines[2]))
    assert seal.sha256 == hashlib.sha256(lines[0]).hexdigest()


def test_with_an_interval_of_zero_a_failed_fsync_writes_nothing_twice(tmp_path):
    writer = Writer(tmp_path / "n", fsync_interval_ms=0)
    writer.start()
    writer.files.broken = {"fsync"}
    writer.write()
    writer.files.broken = set()
    assert writer.tick() == [Unsynced(writer.spool.boot, 0, 0)]
    (sealed,) = sealed_segments(writer.folder)
    assert seqs(sealed) == [0]


def test_nothing_is_written_before_the_name_of_a_segment_is_durable(tmp_path):
    writer = Writer(tmp_path / "n")
    writer.start()
    writer.files.broken = {"sync_directory"}
    for _ in range(2):
        with pytest.raises(SpoolError, match="broken"):
            writer.write()
    (opened,) = open_segments(writer.folder)
    assert opened.read_bytes() == b""
    writer.files.broken = set()
    writer.write()
    assert seqs(opened) == [0]


@pytest.mark.parametrize("written", [0, 2])
def test_an_end_after_a_loss_is_reported_by_the_next_start(writer, written):
    writer.start()
    boot = writer.spool.boot
    writer.write(written)
    writer.spool.close(final=False)
    assert writer.start("11111111") == [Recovered(boot, written - 1 if written else None, 0)]
    writer.spool.close()


def test_an_end_after_a_loss_right_after_a_seal_is_reported_too(tmp_path):
    writer = Writer(tmp_path / "n", segment_age_ms=10)
    aged(writer, 1)
    boot = writer.spool.boot
    writer.spool.close(final=False)
    assert writer.start("11111111") == [Recovered(boot, 0, 0)]


def test_two_crashes_in_a_row_are_both_reported(tmp_path):
    writer = Writer(tmp_path / "n", segment_age_ms=10)
    aged(writer, 1)
    first = writer.spool.boot
    writer.die()
    assert writer.start("11111111") == [Recovered(first, 0, 0)]
    second = writer.spool.boot
    writer.write()
    (opened,) = open_segments(writer.folder)
    writer.die()
    opened.write_bytes(b"")
    assert writer.start("22222222") == [Recovered(first, 0, 0), Recovered(second, None, 0)]


def test_boots_sort_by_time_even_if_the_wall_clock_goes_back(writer):
    writer.start()
    writer.write()
    first = writer.spool.boot
    writer.spool.close()
    writer.clock = ManualClock(wall_ms=1_600_000_000_000)
    writer.start()
    assert writer.spool.boot > first


def test_two_servers_cannot_write_in_one_folder(writer):
    writer.start()
    other = Spool(writer.folder, writer.settings, writer.clock)
    with pytest.raises(SpoolError, match="in use by another server"):
        other.open("11111111")
    writer.spool.close()
    assert other.open("11111111") == []
    other.close()


@pytest.mark.parametrize("name", ["spool", "spool/node"])
def test_a_file_in_the_place_of_a_folder_is_named(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    with pytest.raises(SpoolError, match=f"^{tmp_path / name} {SPOOL_IS_A_FILE}$"):
        Writer(tmp_path / "spool" / "node").start()
