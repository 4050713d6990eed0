"""The loggers of this process and their levels, in Kafka's words (KIP-412). Changes last until the process ends.

The handlers of DescribeConfigs and IncrementalAlterConfigs call the functions, on any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from klamm import ErrorCode, KafkaError

ROOT: Final = "root"
_TRACE: Final = 5
LEVELS: Final = {
    _TRACE: "TRACE",
    logging.DEBUG: "DEBUG",
    logging.INFO: "INFO",
    logging.WARNING: "WARN",
    logging.ERROR: "ERROR",
    logging.CRITICAL: "FATAL",
}
"""Kafka's words for levels."""

_LEVEL_OF: Final = {word: level for level, word in LEVELS.items()}


class LoggerLevel(NamedTuple):
    """One logger and its effective level."""

    name: str
    level: str


def logger_levels() -> list[LoggerLevel]:
    """Return the loggers that write the log."""
    names = [ROOT, *sorted(name for name in logging.root.manager.loggerDict if name.split(".")[0] == "klamm")]
    return [LoggerLevel(name, _word(logging.getLogger(name).getEffectiveLevel())) for name in names]


def _word(level: int) -> str:
    return LEVELS.get(level, logging.getLevelName(level))


def check_levels(changes: Sequence[tuple[str, str | None]]) -> None:
    """Check new levels by logger. None removes the level that a client has set.

    Raises KafkaError: INVALID_CONFIG for an unknown logger or level, INVALID_REQUEST for the root logger without a
    level.
    """
    known = {each.name for each in logger_levels()}
    for name, level in changes:
        if name not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"there is no logger {name}")
        if level is None and name == ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the root logger must have a level")
        if level is not None and level not in _LEVEL_OF:
            levels = ", ".join(_LEVEL_OF)
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"logger {name}: the level must be one of {levels}")


def own_level(name: str) -> str | None:
    """Return the level of the logger itself; None if it inherits its level."""
    level = logging.getLogger(name).level
    return None if level == logging.NOTSET else _word(level)


def set_levels(changes: Sequence[tuple[str, str | None]], configured: Mapping[str, str]) -> None:
    """Set levels that `check_levels` accepts. A logger whose level is None gets its level from `configured`, or else
    inherits one.
    """
    for name, level in changes:
        logging.getLogger(name).setLevel(configured.get(name, logging.NOTSET) if level is None else _LEVEL_OF[level])
