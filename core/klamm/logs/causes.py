"""Functions that describe an exception in one line, with the place in a plugin where it was raised."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Final

# Frames in the core and in Python's import of modules are skipped, because a plugin's error is in other files.
_OTHERS: Final = ("<frozen", f"{Path(__file__).parents[1]}/", f"{Path(traceback.__file__).parent}/importlib/")


def raised_at(error: BaseException) -> str:
    """Return `FILE:LINE` of the innermost line of a plugin in the traceback; empty if there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno or 0}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(_OTHERS):
            return f"{frame.filename}:{frame.lineno}"
    return ""


def failure(error: BaseException) -> str:
    """Return the repr of an exception, and the place where it was raised."""
    # The repr of a syntax error has the place already.
    text = f"SyntaxError({error.msg!r})" if isinstance(error, SyntaxError) else repr(error)
    place = raised_at(error)
    return f"{text} at {place}" if place else text


def cause(error: Exception) -> str:
    """Return the cause for a log line about a part that cannot open.

    For an OSError, the text is the file and the system's message. For another built-in exception, the text also names
    the class and the line, because Python's messages are not written for users. For any other exception, it is the
    message.
    """
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    place = raised_at(error) if type(error).__module__ == "builtins" else ""
    text = str(error) or repr(error)
    return f"{text} ({type(error).__name__} at {place})" if place else text
