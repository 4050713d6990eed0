"""`Transitions`: a table of states and events, which raises for a pair that it lacks."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeVar

S = TypeVar("S", bound=enum.Enum)
E = TypeVar("E", bound=enum.Enum)


class IllegalTransitionError(RuntimeError):
    """Raised for a transition that a table of states does not have, which is a bug of the caller."""


class Transitions(dict[tuple[S, E], S]):
    """A table of states: `table[state, event]` is the next state. It does not change, so any thread may read it.

    A pair that the table lacks raises IllegalTransitionError, whose text names the `thing`, e.g. "a listener".
    """

    def __init__(self, thing: str, rows: Mapping[tuple[S, E], S]) -> None:
        super().__init__(rows)
        self._thing = thing

    def __missing__(self, key: tuple[S, E]) -> S:
        state, event = key
        raise IllegalTransitionError(f"{self._thing} that is {state.name} cannot take {event.name}")
