"""`warn_deprecated`, which announces the removal of a public name; see `docs/stability.md`."""

from __future__ import annotations

import warnings


def warn_deprecated(name: str, instead: str, *, above: int = 1) -> None:
    """Emit a DeprecationWarning with the deprecated name and its replacement.

    Python reports it for the line `above` levels above the caller of this function, by default once for each line.
    """
    warnings.warn(f"{name} is deprecated: {instead}", DeprecationWarning, stacklevel=above + 2)
