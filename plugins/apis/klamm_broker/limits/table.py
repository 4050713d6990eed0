"""`StateTable`: what is declared of a table that clients can make grow."""

from __future__ import annotations

from typing import NamedTuple

from klamm import ErrorCode
from klamm.wire.api_keys import ApiKey


class StateTable(NamedTuple):
    """One table.

    `key`       the setting with its total; `unit` what that counts.
    `content`   what is in it, for metrics and docs.
    `error`     the answer to what is new and has no room.
    `goes`      when entries go.
    `grows_by`  the APIs that make it grow.
    """

    name: str
    key: str
    unit: str
    content: str
    error: ErrorCode
    goes: str
    grows_by: tuple[ApiKey, ...]

    @property
    def attribute(self) -> str:
        """The field of the settings that has the total."""
        return self.key.replace(".", "_")
