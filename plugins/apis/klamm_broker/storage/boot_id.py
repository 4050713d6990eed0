"""Detection of a restart of the machine since the last use of a data directory: unsynced writes may be gone."""

from __future__ import annotations

from collections.abc import Callable
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


def recover_from_restart(store: Store, boot_id: str, recover: Callable[[], None], *, is_clean: bool) -> None:
    """Call `recover` if the machine may have restarted since the last call, unless the last stop was clean.

    Raises StoreError, and what `recover` raises; then the next start calls it again.
    """
    rows = store.read("SELECT value FROM cluster WHERE key = ?", (_KEY,))
    if boot_id and rows == [(boot_id,)]:
        return
    if not is_clean:
        recover()
    store.write_and_wait([("INSERT OR REPLACE INTO cluster (key, value) VALUES (?, ?)", (_KEY, boot_id))])
