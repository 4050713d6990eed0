"""Answers of a worker to the parent's console, which asks because the workers have the parts of listeners."""

from __future__ import annotations

from typing import Any


def answered(found: Any) -> Any:
    """Return what `call_one` has found. Raises TimeoutError if no worker has an answer, which is None."""
    if found is None:
        raise TimeoutError("no worker has an answer; if one has failed, its log has the reason")
    return found
