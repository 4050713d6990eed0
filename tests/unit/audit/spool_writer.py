"""A spool under test, on a disk that can be full or fail, with a clock that stands still."""

import errno
import json
import os

from klamm.testing import ManualClock
from klamm_spark.files import SpoolFiles
from klamm_spark.settings import AuditSettings
from klamm_spark.spool import Spool
from klamm_spark.spool_layout import Seal


def fail():
    """What a broken disk raises."""
    raise OSError(errno.EIO, "broken")


class BadDisk(SpoolFiles):
    """Takes `room` more bytes, then is full; `broken` calls fail, and files whose names are `forbidden` to read."""

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
            fail()


class Writer:
    """A spool under test, with one event per write."""

    def __init__(self, folder, files=None, **settings):
        self.clock = ManualClock()
        self.files = files or BadDisk()
        self.settings = AuditSettings(spool=folder.parent, **settings)
        self.folder = folder
        self.seq = 0
        self.spool = None

    def start(self, boot="00000000"):
        self.seq = 0
        self.spool = Spool(self.folder, self.settings, self.clock, self.files)
        return self.spool.open(boot)

    def write(self, count=1, padding=0):
        for _ in range(count):
            line = json.dumps({"seq": self.seq, "boot": self.spool.boot, "x": "." * padding}).encode() + b"\n"
            self.spool.write(line, self.seq, self.seq, 1)
            self.seq += 1

    def tick(self):
        self.spool.tick()
        return self.spool.take_losses()

    def die(self):
        """As after `kill -9`: what was written is there, nothing else happens."""
        if self.spool._segment is not None:
            self.spool._segment.close()
        os.close(self.spool._lock)


def with_a_sealed_segment(folder, events=2, **settings):
    """A writer that goes on after a first, sealed segment."""
    writer = Writer(folder, segment_age_ms=10, **settings)
    writer.start()
    writer.write(events)
    writer.clock.advance_ms(10)
    writer.spool.tick()
    return writer


def seals(folder):
    return [Seal.read(path) for path in sorted(folder.glob("*.seal"))]


def seqs(path):
    return [json.loads(line)["seq"] for line in path.read_bytes().splitlines()]
