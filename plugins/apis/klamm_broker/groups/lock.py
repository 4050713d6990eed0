"""`GroupLock`: a lock that delivers its holder's answers after the release."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

log = logging.getLogger("klamm.broker.groups")

R = TypeVar("R")


class _Held:
    """The lock itself, and the answers that wait for its release."""

    __slots__ = ("answers", "depth", "lock")

    def __init__(self) -> None:
        # Protects one group. The holder may take it again.
        self.lock = threading.RLock()
        self.depth = 0
        self.answers: list[tuple[Callable[[Any], None], Any]] = []


class GroupLock:
    """A re-entrant lock. `log_name` is the group's name in log lines. With `same_as`, the new object shares the lock of
    another one.
    """

    def __init__(self, log_name: str, same_as: GroupLock | None = None) -> None:
        self.log_name = log_name
        self._held: _Held = same_as._held if same_as is not None else _Held()

    def __enter__(self) -> Self:
        held = self._held
        held.lock.acquire()
        held.depth += 1
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        held = self._held
        held.depth -= 1
        answers: Sequence[tuple[Callable[[Any], None], Any]] = ()
        if held.answers and not held.depth:
            answers, held.answers = held.answers, []
        held.lock.release()
        for reply, result in answers:
            try:
                reply(result)
            except Exception:
                log.exception("group %s: an answer could not be delivered", self.log_name)

    def answer(self, reply: Callable[[R], None], result: R) -> None:
        """Deliver `result` to `reply` after the release."""
        self._held.answers.append((reply, result))
