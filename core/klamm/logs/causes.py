"""The cause of an exception in one line, for people without a traceback, with its place in a plugin."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Final

# The frames of the core, and those that import a module, reveal nothing about a plugin.
_OTHERS: Final = ("<frozen", f"{Path(__file__).parents[1]}/", f"{Path(traceback.__file__).parent}/importlib/")


def raised_at(error: BaseException) -> str:
    """Return `FILE:LINE` of the innermost line of a plugin that raised or imported it; empty if there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno or 0}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(_OTHERS):
            return f"{frame.filename}:{frame.lineno}"
    return ""


def failure(error: BaseException) -> str:
    """Return the exception as code, and the place where it was raised."""
    # The place of a syntax error would be in its repr twice.
    text = f"SyntaxError({error.msg!r})" if isinstance(error, SyntaxError) else repr(error)
    place = raised_at(error)
    return f"{text} at {place}" if place else text


def cause(error: Exception) -> str:
    """Return the cause for a log line about a part that cannot open.

    For an error of the system it consists of the file and the system's message. For one of Python's own exceptions,
    whose message is not written for users, it is the class and the line that raised it. For any other exception it is
    the exception's message.
    """
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    place = raised_at(error) if type(error).__module__ == "builtins" else ""
    text = str(error) or repr(error)
    return f"{text} ({type(error).__name__} at {place})" if place else text
