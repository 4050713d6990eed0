"""`meta.properties`: the cluster, node and directory to which a data directory belongs, in Kafka's format (version 1).

The store also has the id of the machine's boot. If the id has changed at a start, the machine has restarted.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from klamm_broker.log.file_operations import FileOperations
from klamm_broker.storage.store import Store

_BOOT_ID_FILE: Final = Path("/proc/sys/kernel/random/boot_id")
_BOOT_ID_KEY: Final = "boot-id"
FILE_NAME = "meta.properties"


class MetaPropertiesError(Exception):
    """Raised for a data directory of another node, or with an invalid `meta.properties`."""


class MetaProperties(NamedTuple):
    """`cluster_id` and `directory_id` in Kafka's text form of a UUID: 22 characters of URL-safe base64."""

    cluster_id: str
    node_id: int
    directory_id: str


def random_uuid(random_bytes: Callable[[int], bytes]) -> bytes:
    """Return the 16 bytes of a version 4 UUID whose text form does not start with a dash, like Kafka's
    `Uuid.randomUuid`.
    """
    while True:
        raw = bytearray(random_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        if not uuid_text(bytes(raw)).startswith("-"):
            return bytes(raw)


def uuid_text(uuid: bytes) -> str:
    """Return Kafka's text form of a UUID."""
    return base64.urlsafe_b64encode(uuid).decode().rstrip("=")


def uuid_bytes(text: str) -> bytes:
    """Return the 16 bytes of a UUID in Kafka's text form. Raises ValueError."""
    return base64.urlsafe_b64decode(text + "==")


def load(data_dir: Path, node_id: int) -> MetaProperties | None:
    """Read the directory's `meta.properties` if it exists.

    Raises MetaPropertiesError if it belongs to another node or is invalid, OSError if it cannot be read.
    """
    path = data_dir / FILE_NAME
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise MetaPropertiesError(f"{path} is not UTF-8") from None
    found = _parse(path, text)
    if found.node_id != node_id:
        raise MetaPropertiesError(
            f"{path}: this data directory belongs to node.id {found.node_id}, but node.id is set to {node_id}"
        )
    return found


def load_or_create(
    data_dir: Path, node_id: int, random_bytes: Callable[[int], bytes], operations: FileOperations
) -> MetaProperties:
    """Load the properties like `load`. If there is no `meta.properties`, write one for this node in a new cluster."""
    properties = load(data_dir, node_id)
    if properties is None:
        properties = MetaProperties(uuid_text(random_uuid(random_bytes)), node_id, uuid_text(random_uuid(random_bytes)))
        text = (
            f"version=1\ncluster.id={properties.cluster_id}\nnode.id={properties.node_id}\n"
            f"directory.id={properties.directory_id}\n"
        )
        operations.replace_content(data_dir / FILE_NAME, text.encode(), sync=True)
    return properties


def _parse(path: Path, text: str) -> MetaProperties:
    values = dict(
        line.split("=", 1) for line in text.splitlines() if "=" in line and not line.lstrip().startswith(("#", "!"))
    )
    version = values.get("version")
    if version != "1":
        raise MetaPropertiesError(f"{path}: version is {version}, but only 1 is known")
    try:
        return MetaProperties(values["cluster.id"], int(values["node.id"]), values.get("directory.id", ""))
    except KeyError as error:
        raise MetaPropertiesError(f"{path}: {error.args[0]} is missing") from None
    except ValueError:
        raise MetaPropertiesError(f"{path}: node.id {values['node.id']!r} is not a number") from None


def read_boot_id() -> str:
    """Return the id of the system's current boot; empty if it has none."""
    try:
        return _BOOT_ID_FILE.read_text("ascii").strip()
    except OSError:
        return ""


def recover_from_restart(store: Store, boot_id: str, recover: Callable[[], None], *, is_clean: bool) -> None:
    """Call `recover` if the machine may have restarted since the last call and the last stop was not clean.

    Raises StoreError, and the errors of `recover`. After an error the next start calls `recover` again.
    """
    rows = store.read("SELECT value FROM cluster WHERE key = ?", (_BOOT_ID_KEY,))
    if boot_id and rows == [(boot_id,)]:
        return
    if not is_clean:
        recover()
    store.write_and_wait([("INSERT OR REPLACE INTO cluster (key, value) VALUES (?, ?)", (_BOOT_ID_KEY, boot_id))])
