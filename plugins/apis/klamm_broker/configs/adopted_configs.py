"""A copy of a topic's own configs next to its records. If a start finds the directories of a topic that the store does
not know, it adopts the topic with these configs.

The configs in the store are authoritative. A topic with configs has the copy, as JSON, in the directory of partition 0.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from klamm_broker.log.file_operations import FileOperations

log = logging.getLogger("klamm.broker.topics")

TOPIC_CONFIGS_FILE: Final = "topic.configs"


def write_copy(operations: FileOperations, directory: Path, overrides: Mapping[str, str], *, sync: bool) -> None:
    """Write a copy to a partition's directory. A failure is only logged, because the store has the configs."""
    path = directory / TOPIC_CONFIGS_FILE
    try:
        if overrides:
            operations.replace_content(path, json.dumps(dict(overrides), indent=1).encode(), sync=sync)
        elif path.exists():
            operations.remove(path)
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error)


def read_copy(directory: Path) -> dict[str, str]:
    """Return the copy; empty, with a log line, if it is missing or unreadable."""
    path = directory / TOPIC_CONFIGS_FILE
    try:
        found = json.loads(path.read_bytes())
        return {str(name): str(value) for name, value in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        log.error("%s cannot be read, the topic has the defaults: %s", path, error)
        return {}
