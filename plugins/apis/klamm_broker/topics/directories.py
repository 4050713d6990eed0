"""The directories of partitions that exist when the server starts, and those of deleted topics. `TopicRegistry.load`
calls the functions, before the first request.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

from klamm_broker.log.manager import LogManager
from klamm_broker.storage.meta_properties import uuid_bytes
from klamm_broker.storage.store import Store
from klamm_broker.topics.topic_rows import DELETION

log = logging.getLogger("klamm.broker.topics")


_DIRECTORY: Final = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>[0-9]+)")


def partition_directories(data_dir: Path) -> list[tuple[Path, str, int]]:
    """Return the directories of partitions in sorted order, each with its topic and index."""
    found = []
    with os.scandir(data_dir) as entries:
        for entry in entries:
            match = _DIRECTORY.fullmatch(entry.name)
            if match is not None and entry.is_dir():
                found.append((data_dir / entry.name, match["topic"], int(match["partition"])))
    return sorted(found)


def topic_id_of(directory: Path) -> bytes | None:
    """Return the topic id in a directory, if it has one."""
    try:
        text = (directory / "partition.metadata").read_text(encoding="utf-8")
    except OSError:
        return None
    match = re.search(r"^topic_id: ?([A-Za-z0-9_-]{22})$", text, re.MULTILINE)
    return uuid_bytes(match[1]) if match is not None else None


def topics_in(data_dir: Path, without: Collection[str]) -> dict[str, tuple[bytes, int]]:
    """Return the topics that have directories, except the given ones, each with its id and number of partitions."""
    found: dict[str, tuple[bytes, int]] = {}
    for directory, name, index in partition_directories(data_dir):
        topic_id = topic_id_of(directory) if name not in without else None
        if topic_id is not None and found.get(name, (topic_id, 0))[0] == topic_id:
            found[name] = (topic_id, max(index + 1, found.get(name, (topic_id, 0))[1]))
    return found


def finish_deletions(store: Store, logs: LogManager, data_dir: Path) -> None:
    """Remove the directories of topics whose deletion has started. A directory without a topic id is set aside."""
    rows = store.read("SELECT key, value FROM cluster WHERE key LIKE ?", (DELETION + "%",))
    names = {bytes.fromhex(key.removeprefix(DELETION)): name for key, name in rows}
    if not names:
        return
    failed = False
    gone = set(names.values())
    deleted: list[tuple[str, int]] = []
    for directory, name, index in partition_directories(data_dir):
        if name not in gone:
            continue
        topic_id = topic_id_of(directory)
        try:
            if topic_id in names:
                deleted.append((name, index))
            elif topic_id is None:
                logs.set_aside(name, index)
        except OSError as error:
            log.error("%s cannot be removed: %s", directory, error)
            failed = True
    failed |= bool(logs.delete_all(deleted))
    if not failed:
        store.write_and_wait([("DELETE FROM cluster WHERE key = ?", (key,)) for key, _name in rows])
