"""`WorkerConnections`, which lists, closes and moves the open connections of all workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from klamm.network.connection_looks import OneAtATime

Ask: TypeAlias = Callable[..., "dict[int, Any]"]
"""Takes `(action, arguments, timeout_s, one=False)`, and returns the workers' answers by number.

A missing answer is None.
"""

_ANSWER_WITHIN_S: Final = 2.0


class WorkerConnections:
    """The object in `ServerServices.connections` of the parent. In lists, each connection has its `worker`'s number."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._looks = OneAtATime()

    def look(self, timeout_s: float) -> dict[str, Any]:
        """Return the connections of all workers, and the processors and workers that have not answered in time.

        Raises TimeoutError if another caller's look does not end in time.
        """
        joined: dict[str, Any] = {"connections": [], "unanswered": [], "listeners": []}
        with self._looks.within(timeout_s):
            answers = self._ask("look", [timeout_s], timeout_s + _ANSWER_WITHIN_S)
        for number, answer in answers.items():
            if answer is None:
                joined["unanswered"].append({"worker": number})
                continue
            for name, rows in joined.items():
                rows += [{**row, "worker": number} for row in answer[name]]
        return joined

    def close(self, connection_id: str) -> str:
        """Close a connection of any worker soon; return a problem, or an empty text."""
        return _one(self._ask("close", [connection_id], _ANSWER_WITHIN_S))

    def move(self, connection_id: str, index: int) -> str:
        """Move a connection to another processor of its worker; return a problem, or an empty text."""
        return _one(self._ask("move", [connection_id, index], _ANSWER_WITHIN_S))


def _one(answers: dict[int, Any]) -> str:
    """Return the answer of the worker that has the connection; the other workers answer that it does not exist."""
    if "" in answers.values():
        return ""
    problems: list[str] = [answer for answer in answers.values() if answer is not None]
    return next((one for one in problems if "there is no connection" not in one), (*problems, "no worker answers")[0])
