"""`GroupLock`: a lock whose holder's answers are delivered after its release."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

log = logging.getLogger("klamm.broker.groups")

R = TypeVar("R")


class GroupLock:
    """Re-entrant. `log_name` is the group's name in log lines."""

    def __init__(self, log_name: str) -> None:
        self.log_name = log_name
        self._lock = threading.RLock()
        self._depth = 0
        self._answers: list[tuple[Callable[[Any], None], Any]] = []

    def __enter__(self) -> Self:
        self._lock.acquire()
        self._depth += 1
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._depth -= 1
        answers: Sequence[tuple[Callable[[Any], None], Any]] = ()
        if self._answers and not self._depth:
            answers, self._answers = self._answers, []
        self._lock.release()
        for reply, result in answers:
            try:
                reply(result)
            except Exception:
                log.exception("group %s: an answer could not be delivered", self.log_name)

    def answer(self, reply: Callable[[R], None], result: R) -> None:
        """Deliver `result` to `reply` after the release."""
        self._answers.append((reply, result))
