"""Functions that check the rules of a conformance suite.

A rule is a function whose docstring states the expected behaviour. It returns if the part keeps the rule. Otherwise it
raises an exception, which describes the actual behaviour.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, TypeVar

from klamm.wire.api_keys import ApiKey

T = TypeVar("T")

PATIENCE_S: float = 5.0
"""The longest time that a call which must not block may take. A suite waits equally long for threads and peers."""

_THREADS: Final = 4
_CALLS: Final = 25


class Broken(Exception):
    """Raised if a part breaks a rule; the message describes the actual behaviour."""


def ensure(kept: object, got: str) -> None:
    """Raise `Broken(got)` unless `kept` is true."""
    if not kept:
        raise Broken(got)


def run_rules(rules: Sequence[Callable[[Any], None]], case: Any) -> None:
    """Check each rule of a `PartCase`. Raises AssertionError for the first broken one, with the part and the rule.

    The message also has the expected and the actual behaviour.
    """
    for rule in rules:
        try:
            rule(case)
        except Exception as error:
            _fail(case.part_name, rule, error)


def _fail(part: str, rule: Callable[[Any], None], error: Exception) -> NoReturn:
    expected = " ".join((rule.__doc__ or "").split())
    got = str(error) if isinstance(error, Broken) else f"raised {error!r}"
    cause = None if isinstance(error, Broken) else error
    raise AssertionError(f"{part} breaks the rule {rule.__name__}: expected: {expected} But: {got}") from cause


def within_patience(what: str, call: Callable[..., T], *arguments: Any) -> T:
    """Make a call on another thread, and return its result or raise its exception.

    Raises Broken if the call still runs after `PATIENCE_S`.
    """
    outcome: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(call(*arguments))
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="conformance", daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    ensure(not thread.is_alive(), f"{what} was still running after {PATIENCE_S:g} s")
    if failure:
        raise failure[0]
    return outcome[0]


def from_threads(what: str, call: Callable[[int], object]) -> None:
    """Make many calls on several threads concurrently, each with another number. Raises the exceptions of the calls."""
    start = threading.Barrier(_THREADS)
    failures: list[BaseException] = []

    def run(first: int) -> None:
        start.wait()
        try:
            for number in range(_CALLS):
                call(first * _CALLS + number)
        except BaseException as error:
            failures.append(error)

    threads = [
        threading.Thread(target=run, args=(first,), name="conformance", daemon=True) for first in range(_THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    ensure(not any(thread.is_alive() for thread in threads), f"{what} from {_THREADS} threads does not end")
    if failures:
        raise failures[0]


def is_label(text: object) -> bool:
    """Return True if a reason can be a metric label: lower_snake_case."""
    return isinstance(text, str) and text != "" and text == text.lower() and text.replace("_", "").isalnum()


def are_api_keys(keys: object) -> bool:
    """Return True if these are keys of existing APIs."""
    known = set(ApiKey)
    try:
        return not isinstance(keys, (str, bytes)) and all(key in known for key in keys)  # type: ignore[attr-defined]
    except TypeError:
        return False
