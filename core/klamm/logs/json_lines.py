"""Log records as JSON Lines: each record is one object on one line. Fields have the same names as in the audit."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from klamm.logs.escaping import LogFields

_PLACEHOLDER: Final = re.compile(r"(?:(?P<name>\w+)=)?%(?:%|[-+#0-9.]*[a-zA-Z])")
_AUDIT_NAMES: Final = {
    "api": "api_name",
    "version": "api_version",
    "size_bytes": "request_bytes",
    "total_ms": "total_time_ms",
    "request_queue_ms": "request_queue_time_ms",
    "local_ms": "local_time_ms",
    "remote_ms": "remote_time_ms",
    "response_queue_ms": "response_queue_time_ms",
    "send_ms": "send_time_ms",
    "throttle_ms": "throttle_time_ms",
}
"""Maps short names of the text format to the names that the audit gives to the same fields."""


class JsonFormatter(logging.Formatter):
    """A formatter that writes each record as one JSON object in ASCII. No client's text can end a line or add a field.

    Fields are `time` (UTC), `level`, `logger` and `message`, `worker` if the server has several, `exception` and
    `stack` if there are any, and the fields that the message names, e.g. `listener` and `principal`.
    """

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._worker is not None:
            line["worker"] = self._worker
        # Another formatter may have stored the text of the exception already.
        exception = self.formatException(record.exc_info) if record.exc_info else record.exc_text
        if exception:
            line["exception"] = exception
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        for name, value in _named(record):
            line.setdefault(_AUDIT_NAMES.get(name, name), _plain(value))
        return json.dumps(line)


def _named(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    """Yield the fields that a message names as `name=%s`, and the fields of arguments that are `LogFields`.

    The names come from the format string in the code, so that a client's text that looks like a field is ignored.
    """
    if not isinstance(record.args, tuple) or not isinstance(record.msg, str):
        return
    arguments = iter(record.args)
    for found in _PLACEHOLDER.finditer(record.msg):
        if found[0].endswith("%%"):
            continue
        value: Any = next(arguments, None)
        if isinstance(value, LogFields):
            yield from value.fields.items()
        elif found["name"]:
            yield found["name"], value


def _plain(value: object) -> object:
    if value is None or isinstance(value, (bool, int)):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else str(value)
