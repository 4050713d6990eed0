"""The destination and the format of the server's log: standard error or a file, text or JSON."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from klamm.logs.escaping import FORMAT, EscapingFormatter

JSON: Final = "json"
LOG_FORMATS: Final = ("text", JSON)


def log_formatter(log_format: str, worker: int | None = None) -> logging.Formatter:
    """Return the formatter of a format; `worker` is the number of this worker process, if there are several."""
    if log_format == JSON:
        from klamm.logs.json_lines import JsonFormatter

        return JsonFormatter(worker)
    return EscapingFormatter(FORMAT if worker is None else f"{FORMAT} worker={worker}")


def start_logging(log_format: str, file: Path | None, levels: Mapping[str, str]) -> None:
    """Start the log of this process. `levels` maps names of loggers to levels, including the root logger's.

    Raises OSError if the file cannot be opened.
    """
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if file is not None:
        # Imported here, because a server that logs to standard error does not need it.
        from klamm.logs.log_file import LogFile
        from klamm.runtime.files import make_folder

        make_folder(file.parent)
        handler = LogFile(file)
    handler.setFormatter(log_formatter(log_format))
    logging.basicConfig(handlers=[handler])
    set_log_levels(levels)


def set_log_levels(levels: Mapping[str, str], before: Mapping[str, str] | None = None) -> None:
    """Set the levels that differ from `before`. A logger that is only in `before` loses its own level.

    Other loggers stay as they are, because a client may have set their levels (IncrementalAlterConfigs).
    """
    before = before or {}
    for name in before.keys() - levels.keys():
        logging.getLogger(name).setLevel(logging.NOTSET)
    for name, level in levels.items():
        if level != before.get(name):
            logging.getLogger(name).setLevel(level)


def log_file_descriptors() -> list[int]:
    """Return the descriptors of log files, which a forked process must keep open."""
    found = []
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.FileHandler) and handler.stream is not None:
            with contextlib.suppress(OSError, ValueError):
                found.append(handler.stream.fileno())
    return found


def log_as_worker(log_format: str, worker: int) -> None:
    """Add the number of the worker to every log line of this process, from now on."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(log_formatter(log_format, worker))
