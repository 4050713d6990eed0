"""The secret key of delegation tokens."""

from __future__ import annotations

import os
from pathlib import Path


def read_secret_key(file: Path | None, variable: str | None) -> bytes | None:
    """Return the key in a file or in an environment variable. If neither is configured, return None: tokens are off.

    Raises OSError for a file that cannot be read, ValueError for an empty key and if both are configured.
    """
    if file is None and variable is None:
        return None
    if file is not None and variable is not None:
        raise ValueError("delegation.token.secret.key comes from a file or from the environment, not from both")
    if file is not None:
        key = file.read_bytes().strip()
    else:
        assert variable is not None
        key = os.environ.get(variable, "").encode()
    if not key:
        raise ValueError(
            f'the environment variable "{variable}" is not set or empty' if file is None else f"{file}: is empty"
        )
    return key
