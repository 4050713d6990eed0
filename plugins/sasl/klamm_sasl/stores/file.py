"""The store `file`: a file with a user and a SCRAM verifier in each line.

The scheduler's thread reads the file again when its content changes.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from klamm import ListenerContext
from klamm.metrics import Counter
from klamm.runtime import Timer
from klamm_sasl.sasl_settings import FileStoreSettings
from klamm_sasl.stores.user_table import UserTable, UserTableStore
from klamm_sasl.stores.users_file import parse_users, text_of

log = logging.getLogger("klamm.sasl")


class FileStore(UserTableStore):
    """The users in a file, which is checked every `refresh_ms` and at SIGHUP.

    If the new content is invalid, this is logged and counted, and the old users stay.
    """

    settings: FileStoreSettings

    _failures: Counter
    _timer: Timer

    def __init__(self, settings: FileStoreSettings) -> None:
        super().__init__(settings)
        self._path: Path = settings.path
        self._digest = b""
        # The last failure, until a read succeeds: a digest of the content or the system's message, and the text for the
        # log.
        self._failure: tuple[bytes | str, str] | None = None
        self._table = UserTable(())
        self._changed: Callable[[Iterable[str] | None], object] | None = None

    def open(self, listener: ListenerContext) -> None:
        """Read the file and start its checks. Raises ValueError or OSError if the file cannot be read or is wrong."""
        services = listener.services
        self._failures = services.metrics.counter(
            "klamm:type=sasl,name=credential-file-failures-total",
            "Changes of the users file that could not be loaded.",
            listener=listener.name,
        )
        self.reload()
        self._timer = services.scheduler.every(self.settings.refresh_ms, self._look)

    def reload(self) -> None:
        """Read the file again. Raises ValueError or OSError, and keeps the old content then.

        A failure that repeats is counted once.
        """
        try:
            data = self._path.read_bytes()
        except OSError as error:
            self._failed(str(error), str(error))
            raise
        digest = hashlib.sha256(data).digest()
        if digest == self._digest:
            self._failure = None
            return
        if self._failure is not None and self._failure[0] == digest:
            raise ValueError(self._failure[1])
        try:
            table = UserTable(parse_users(text_of(data)))
        except ValueError as error:
            message = f"{self._path}: {error}"
            self._failed(digest, message)
            raise ValueError(message) from error
        before = self._table
        self._table, self._digest, self._failure = table, digest, None
        log.info("%s: %d users", self._path, len(table))
        if self._changed is not None:
            # Include new users: they may hide a user of the same name in a later store.
            self._changed(before.changed_users(table) | table.changed_users(before))

    def _failed(self, what: bytes | str, message: str) -> None:
        if self._failure is None or self._failure[0] != what:
            self._failure = (what, message)
            self._failures.add()

    def _look(self) -> None:
        before = self._failure
        try:
            self.reload()
        except (OSError, ValueError) as error:
            if self._failure is not before:
                log.error("users were not reloaded: %s", error)

    def watch(self, changed: Callable[[Iterable[str] | None], object]) -> None:
        self._changed = changed

    def close(self) -> None:
        self._timer.cancel()
