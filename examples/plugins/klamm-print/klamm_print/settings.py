"""Settings of the handler set `print`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from klamm import setting


@dataclass(frozen=True, slots=True)
class PrintSettings:
    """The table `[print]`."""

    file: Path | None = setting(None, doc="The file to which the lines are appended. Unset means standard output.")
    partitions: int = setting(1, doc="Partitions that every topic seems to have.", minimum=1)
    message_max_bytes: int = setting(
        1_048_588, name="message.max.bytes", doc="Largest record batch that is taken.", minimum=1
    )
