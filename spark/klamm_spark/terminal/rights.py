"""`klamm audit publish`, which writes each reader's part of the trail, and `pseudonym`, which prints pseudonyms.

Each reader has a folder with a part of the trail, in the format of a spool. So all commands that read a spool can read
it, and a reader cannot see more than this folder has. The rights of the file system protect the folders.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from klamm_spark.errors import LakeError
from klamm_spark.events.pseudonyms import KINDS, Pseudonyms
from klamm_spark.settings.readers import ReaderSettings, read_readers
from klamm_spark.settings.spark import Pipeline
from klamm_spark.spool.compression import compress
from klamm_spark.spool.layout import SEALED_SUFFIX, node_folders, segment_files
from klamm_spark.spool.reader import local_spool, read_segment, segments_of
from klamm_spark.spool.signatures import read_private
from klamm_spark.storage.filesystems import UnfitFileError, create_durably

COMMANDS: Final = ("publish", "pseudonym")
_RULES: Final = ".klamm-rules"
_POLL_S: Final = 5.0
_NOT_FOR_OTHERS: Final = 0o027


def add_commands(commands: Any, spool: list[argparse.ArgumentParser]) -> None:
    """Add the subcommands. `spool` has the arguments for the place of the spool."""
    publish = commands.add_parser(
        "publish", parents=spool, help="write each reader's part of the trail to the reader's folder"
    )
    publish.add_argument("--once", action="store_true", help="end after all segments that are complete now are written")
    pseudonym = commands.add_parser("pseudonym", help="print the pseudonyms of accounts and addresses")
    pseudonym.add_argument("--key", metavar="FILE", type=Path, required=True, help="the file of pseudonym_key")
    pseudonym.add_argument(
        "names", metavar="NAME", nargs="*", help="e.g. User:alice, 10.0.0.7; without any, those of standard input"
    )


def run(options: argparse.Namespace, pipeline: Pipeline, say: Callable[[str], None]) -> int:
    """Run one of `COMMANDS`. Raises LakeError, KeyFileError, klamm.ConfigError."""
    if options.command == "pseudonym":
        pseudonyms = Pseudonyms(KINDS, read_private(options.key))
        for name in options.names or map(str.strip, sys.stdin):
            print(f"{pseudonyms.of(name)}\t{name}", flush=True)
        return 0
    if options.file is None:
        raise LakeError("publish needs the file that has [audit.readers]")
    spool = local_spool(pipeline, options.command)
    os.umask(_NOT_FOR_OTHERS)
    readers = [Reader(name, settings, spool) for name, settings in read_readers(options.file).items()]
    if not readers:
        raise LakeError(f"{options.file} has no [audit.readers.NAME]")
    try:
        while True:
            for line in publish(spool, readers):
                say(line)
            if options.once:
                return 0
            time.sleep(_POLL_S)
    except OSError as error:
        raise LakeError(f"{error.filename}: {error.strerror}") from error


class Reader:
    """A reader of a part of the trail, and the folder that has this part."""

    def __init__(self, name: str, settings: ReaderSettings, spool: Path) -> None:
        """Check the settings of a reader, and read its key. Raises LakeError, KeyFileError."""
        self.name, self.settings, self.folder = name, settings, settings.folder
        self._named = None
        if settings.pseudonyms:
            if settings.pseudonym_key is None:
                raise LakeError(f"the reader {name} needs pseudonym_key, a file of klamm audit key")
            self._named = Pseudonyms(settings.pseudonyms, read_private(settings.pseudonym_key))
        own, whole = self.folder.resolve(), spool.resolve()
        if own == whole or own in whole.parents or whole in own.parents:
            raise LakeError(f"the folder of the reader {name} must be apart from the spool {spool}")

    def prepare(self) -> None:
        """Empty the folder if it was written by other rules. Raises LakeError if it has other files than a reader's."""
        rules = repr(self.settings) + (self._named.fingerprint if self._named is not None else "")
        digest = hashlib.sha256(rules.encode()).hexdigest()
        mark = self.folder / _RULES
        self.folder.mkdir(parents=True, exist_ok=True)
        there = mark.read_text() if mark.exists() else None
        if there == digest:
            return
        others = [path for path in self.folder.iterdir() if path != mark]
        if there is None and others:
            raise LakeError(f"{self.folder} has something else than the part of a reader: {others[0].name}")
        for path in others:
            shutil.rmtree(path)
        create_durably(mark, digest.encode())

    def sees(self, event: dict[str, Any], line: str) -> str | None:
        """Return the line that the reader may see in the place of the event's `line`; None if the reader may not see
        the event.
        """
        settings = self.settings
        if settings.kinds and event.get("kind") not in settings.kinds:
            return None
        if settings.principals and not _is_one(event.get("principal", ""), settings.principals):
            return None
        if settings.topics:
            resources = event.get("resources", ())
            left = [one for one in resources if one["type"] == "TOPIC" and _is_one(one["name"], settings.topics)]
            if not left:
                return None
            if len(left) < len(resources):
                line = json.dumps(event | {"resources": left}, separators=(",", ":"))
        return line if self._named is None else self._named.in_text(line)


def _is_one(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def publish(spool: Path, readers: list[Reader]) -> Iterator[str]:
    """Bring the folders of readers up to date with the spool, and yield a line for each segment. Raises OSError,
    LakeError.
    """
    for reader in readers:
        reader.prepare()
    sealed = {folder.name: segments_of(Path(str(folder)), live=False) for folder in node_folders(spool)}
    for segments in sealed.values():
        for stem, path in segments.items():
            # The parent is the folder of a day, or the stream's folder.
            place = path.parent.relative_to(spool) / f"{stem}{SEALED_SUFFIX}.zst"
            missing = [reader for reader in readers if not (reader.folder / place).exists()]
            if missing:
                yield from _write(path, place, missing)
    for reader in readers:
        for folder in node_folders(reader.folder):
            for part in segment_files(folder):
                # Retention has deleted the segment.
                if part.name.partition(".")[0] not in sealed.get(folder.name, {}):
                    part.unlink(missing_ok=True)


def _write(path: Path, place: Path, readers: list[Reader]) -> Iterator[str]:
    try:
        lines = read_segment(path).decode("utf-8", "replace").split("\n")[:-1]
    except FileNotFoundError:
        return
    except (UnfitFileError, ValueError) as error:
        yield f"{error}: no reader gets it"
        return
    found: dict[str, list[str]] = {reader.name: [] for reader in readers}
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        for reader in readers if isinstance(event, dict) else ():
            seen = reader.sees(event, line)
            if seen is not None:
                found[reader.name].append(f"{seen}\n")
    for reader in readers:
        # The file is written even without events, so that the segment is not read again.
        create_durably(reader.folder / place, compress("".join(found[reader.name]).encode(), "zstd"))
    yield f"{place.name.partition('.')[0]}: " + ", ".join(f"{name} {len(events):,}" for name, events in found.items())
