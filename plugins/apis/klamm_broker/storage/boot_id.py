"""Whether the machine has restarted since a data directory was last in use: writes that were not synced may be gone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from klamm_broker.storage.store import Store

_LINUX: Final = Path("/proc/sys/kernel/random/boot_id")
_KEY: Final = "boot-id"


def read_boot_id() -> str:
    """The id that the system gave itself when it started; empty if it has none."""
    try:
        return _LINUX.read_text("ascii").strip()
    except OSError:
        return ""


def is_same_boot(store: Store, boot_id: str) -> bool:
    """Whether the machine runs since `keep_boot_id`; False if that is unknown. Raises StoreError."""
    rows = store.read("SELECT value FROM cluster WHERE key = ?", (_KEY,))
    return bool(boot_id) and rows == [(boot_id,)]


def keep_boot_id(store: Store, boot_id: str) -> None:
    """From here on nothing is left to do for a restart of the machine. Raises StoreError."""
    store.write_and_wait([("INSERT OR REPLACE INTO cluster (key, value) VALUES (?, ?)", (_KEY, boot_id))])
