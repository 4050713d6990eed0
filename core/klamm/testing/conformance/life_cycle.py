"""The rules of `klamm.Part`, which parts of every kind must keep."""

from __future__ import annotations

import inspect
import itertools
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from klamm.api.contracts import contract_problem
from klamm.testing.conformance import rules
from klamm.testing.conformance.rules import ensure, within_patience
from klamm.testing.memory import MemoryListener

_DAY_MS: Final = 24 * 3600 * 1000


class PartCase:
    """A part under test. The suite makes it with `factory(settings)` and opens it, as the server does.

    `other_settings` are changed settings for `reconfigure`. `listener` is the listener of the part opened last.
    """

    contract: type

    def __init__(self, factory: Callable[..., Any], settings: Any, other_settings: Any = None) -> None:
        self.settings = settings
        self.other_settings = settings if other_settings is None else other_settings
        self._factory = factory
        self.listener = MemoryListener()

    @property
    def part_name(self) -> str:
        """Return the name of the part for messages."""
        made = self._factory
        name = getattr(made, "__qualname__", repr(made))
        return f"the {self.contract.__name__} {getattr(made, '__module__', '?')}.{name}"

    def make(self) -> Any:
        """Return a new part that is not open yet."""
        return self._factory(self.settings)

    def host(self) -> Any:
        """Return the argument of `open`."""
        self.listener = MemoryListener()
        return self.listener.context

    def neighbour(self) -> Any:
        """Return the argument of `open` for another part of that class, opened while the last one is open."""
        return MemoryListener("neighbour", self.listener.services).context

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """Yield a new part that is open until the block ends."""
        part = self.make()
        part.open(self.host())
        try:
            yield part
        finally:
            part.close()


class ServerPartCase(PartCase):
    """A part under test that belongs to a server, and not to a listener."""

    def neighbour(self) -> Any:
        return self.host()

    def host(self) -> Any:
        super().host()
        return self.listener.services


def fits_its_contract(case: PartCase) -> None:
    """The factory makes an instance of the contract, whose methods accept the arguments of klamm's calls."""
    problem = contract_problem(type(case.make()), case.contract)
    ensure(problem is None, str(problem))


def can_be_made_again(case: PartCase) -> None:
    """Each call of the factory makes another part, and starts nothing: only `open` may start something."""
    before = set(threading.enumerate())
    ensure(case.make() is not case.make(), "two calls returned the same object")
    ensure(set(threading.enumerate()) == before, "the factory has started a thread")


def opens_and_closes(case: PartCase) -> None:
    """A part opens and closes, alone and together with another one, each within seconds."""
    for _ in range(2):
        part = case.make()
        within_patience("open", part.open, case.host())
        within_patience("close", part.close)
    with case.opened() as first:
        second = case.make()
        second.open(case.neighbour())
        second.close()
        first.reload()


def ends_its_threads(case: PartCase) -> None:
    """A closed part has ended the threads that it started."""
    before = set(threading.enumerate())
    with case.opened():
        pass
    deadline = time.monotonic() + rules.PATIENCE_S
    while left := [one for one in set(threading.enumerate()) - before if one.name != "conformance"]:
        ensure(time.monotonic() < deadline, f"these threads go on: {sorted(one.name for one in left)}")
        left[0].join(0.01)


def leaves_no_timer_that_fails(case: PartCase) -> None:
    """Timers of a part do not raise while it is open, and do nothing after it is closed."""
    with _logging_nothing("klamm.scheduler"):
        with case.opened():
            case.listener.advance_ms(_DAY_MS)
        case.listener.advance_ms(_DAY_MS)


def takes_changes_in_any_order(case: PartCase) -> None:
    """`reload` and `reconfigure` may follow each other in any order; `reconfigure` returns True or False."""
    changes: tuple[Callable[[Any], None], ...] = (
        _reload,
        partial(_reconfigure, settings=case.other_settings),
        partial(_reconfigure, settings=case.settings),
    )
    with case.opened() as part:
        for order in itertools.permutations(changes):
            for change in order:
                change(part)


def _reload(part: Any) -> None:
    part.reload()


def _reconfigure(part: Any, settings: Any) -> None:
    applied = part.reconfigure(settings)
    ensure(applied is True or applied is False, f"reconfigure returned {applied!r}")


def leaves_its_settings_alone(case: PartCase) -> None:
    """A part does not change its settings, because other parts may share them."""
    before = repr(case.settings)
    with case.opened() as part:
        part.reload()
        part.reconfigure(case.other_settings)
    ensure(repr(case.settings) == before, f"{before} became {case.settings!r}")


def its_metrics_can_be_read(case: PartCase) -> None:
    """The metrics that a part has registered can be read while it is open and after it is closed."""
    with _logging_nothing("klamm.metrics"):
        with case.opened():
            list(case.listener.services.metrics.collect())
        list(case.listener.services.metrics.collect())


@contextmanager
def _logging_nothing(name: str) -> Iterator[None]:
    """Raise Broken if the block logs to this logger: klamm logs exceptions of timers, and continues."""
    failures: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: failures.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger(name)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
    ensure(not failures, "; ".join(failures))


def rules_of(case: type[PartCase]) -> tuple[Callable[[Any], None], ...]:
    """Return the rules of a suite: the rules of this module, and the public functions that take this class of case."""
    own = (
        each
        for name, each in vars(sys.modules[case.__module__]).items()
        if inspect.isfunction(each) and each.__annotations__.get("case") == case.__name__ and not name.startswith("_")
    )
    return (*(() if case is PartCase else LIFE_CYCLE), *own)


LIFE_CYCLE: Final = rules_of(PartCase)
