"""`LogFile`: a log file that another program may move away."""

from __future__ import annotations

import contextlib
import logging
import sys
from logging.handlers import WatchedFileHandler
from pathlib import Path


class LogFile(WatchedFileHandler):
    """A handler that appends to a file, and opens it again if another program has moved or removed it.

    Each record is one write at the end of the file, so several processes may share the file. A record that cannot be
    written goes to standard error; the logging call does not raise.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8", errors="backslashreplace")

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        try:
            super().emit(record)
        except OSError:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Write a record to standard error."""
        with contextlib.suppress(Exception):
            sys.stderr.write(f"{self.format(record)}\n")
