"""Functions that settings name as `module:function`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def load_function(path: str | None) -> Callable[..., Any] | None:
    """Return the function that `module:function` names. Raises the errors of its import, and TypeError if it cannot be
    called.
    """
    if path is None:
        return None
    module, _, name = path.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    if not callable(function):
        raise TypeError(f"{path} is a {type(function).__name__}, which cannot be called")
    return function
