"""Announcements that a public name is going to be removed; `docs/stability.md` has the promise."""

from __future__ import annotations

import warnings


def warn_deprecated(name: str, instead: str, *, above: int = 1) -> None:
    """Emit a DeprecationWarning: what is deprecated, and what to do instead.

    It is reported for the caller `above` levels over the one that calls this, once for each such place, as Python does
    by default.
    """
    warnings.warn(f"{name} is deprecated: {instead}", DeprecationWarning, stacklevel=above + 2)
