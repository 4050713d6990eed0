"""Functions of helpers that wait for a condition, or raise the error of an answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from klamm.wire.errors import ErrorCode, KafkaError

T = TypeVar("T")
_LOOK_EVERY_S: Final = 0.005


def check_error(error_code: int, message: str | None) -> None:
    """Raise the KafkaError of an answer, unless its code is 0."""
    if error_code:
        raise KafkaError(ErrorCode(error_code), message)


def wait_until(condition: Callable[[], T], what: str = "", *, timeout_s: float = 10.0) -> T:
    """Call `condition` until its result is true, and return the result. Raises TimeoutError with `what`."""
    deadline = time.monotonic() + timeout_s
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s:g} s: {what or condition}")
        time.sleep(_LOOK_EVERY_S)
    return result
