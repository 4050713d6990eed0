"""`resizing`, which changes numbers of threads together: all of them, or none if a thread cannot start."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple


class Resize(NamedTuple):
    """The change of one number. `resize` sets the number, or raises and changes nothing. Only growth may raise."""

    key: str
    before: int
    after: int
    resize: Callable[[int], None]


@contextlib.contextmanager
def resizing(resizes: Sequence[Resize]) -> Iterator[list[str]]:
    """Make the changes, for a block that gets their descriptions and may fail.

    New threads start before the block. If a thread cannot start, or if the block fails, the started threads end.
    Surplus threads end after the block, because ending them cannot fail. Raises RuntimeError with the key.
    """
    with contextlib.ExitStack() as undo:
        for one in resizes:
            if one.after > one.before:
                try:
                    one.resize(one.after)
                except (RuntimeError, OSError) as error:
                    raise RuntimeError(f"{one.key} = {one.after}: {error}") from error
                undo.callback(one.resize, one.before)
        yield [f"{one.key}: {one.before} before, {one.after} now" for one in resizes]
        undo.pop_all()
    for one in resizes:
        if one.after < one.before:
            one.resize(one.after)
