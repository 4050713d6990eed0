"""`PartFailures`: the log of exceptions that a listener's parts raise because of clients, one line a minute."""

from __future__ import annotations

import logging
from collections.abc import Callable

from klamm.logs.rate_limited import RateLimitedLog


class PartFailures:
    """The log of failures of one listener's parts. Any thread may call it.

    A line names listener, provider, distribution, class and method.
    """

    def __init__(self, listener: str, later: Callable[[float, Callable[[], object]], object]) -> None:
        self._listener = listener
        self._later = later
        self._logs: dict[str, RateLimitedLog] = {}

    def log(self, logger: logging.Logger, part: object, method: str, error: Exception) -> None:
        """Log that a method of a part has raised, or has returned a wrong type. Equal failures share one line."""
        limited = self._logs.get(logger.name)
        if limited is None:
            limited = self._logs.setdefault(logger.name, RateLimitedLog(logger, self._later))
        name = name_of(part)
        key = (name, method, type(error))
        limited.log(key, logging.ERROR, "listener=%s: %s failed in %s", self._listener, name, method, error=error)


class WrongTypeError(TypeError):
    """The error of a part that has returned a value of a wrong type."""


def unfit(returned: object, *expected: str) -> WrongTypeError:
    """Return the error for a call that returned a value of a type other than `expected`."""
    text = repr(returned)
    return WrongTypeError(f"expected {' or '.join(expected)}, got {text if len(text) <= 100 else text[:100] + '…'}")


def name_of(part: object) -> str:
    """Return the name of a part for messages: its class, after its origin if the server has set it."""
    kind = type(part)
    name = f"{kind.__module__}.{kind.__qualname__}"
    origin = getattr(part, "origin", "")
    return f"{origin} ({name})" if origin else name
