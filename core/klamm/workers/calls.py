"""`WorkerCalls`: calls functions in the workers for the parent's extensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from klamm.workers.connections import Ask


class WorkerCalls:
    """The object in `ServerServices.workers` of the parent. Any thread but the parent's loop may call it."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def call(self, function: str, arguments: Sequence[Any], timeout_s: float) -> dict[int, Any]:
        """Call a function in all workers; return their answers by number."""
        return self._ask(function, arguments, timeout_s)

    def call_one(self, function: str, arguments: Sequence[Any], timeout_s: float) -> Any:
        """Call a function in one worker, or in the next one if it does not answer; return the answer."""
        answers = self._ask(function, arguments, timeout_s, one=True).values()
        return next((answer for answer in answers if answer is not None), None)
