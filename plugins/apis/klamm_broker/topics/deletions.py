"""Deletions of topics that were started and not finished, as a start finds them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from klamm_broker.topics.directories import partition_directories, topic_id_of
from klamm_broker.topics.topic_rows import DELETION

if TYPE_CHECKING:
    from klamm_broker.log import LogManager
    from klamm_broker.storage.store import Store

log = logging.getLogger("klamm.broker.topics")


def finish_deletions(store: Store, logs: LogManager, data_dir: Path) -> None:
    """Remove the directories of topics whose deletion was started; one without a topic id is set aside."""
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
