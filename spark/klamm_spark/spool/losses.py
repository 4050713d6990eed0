"""Events that a spool has lost, or may have lost. The audit records each loss as an `audit_gap` event."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Recovered:
    """A boot that ended in a crash: its last durable event, and how many torn bytes were cut off behind it.

    `unreadable` is set if one of its files was put aside: it names the file and the reason. How that boot ended, or
    what the file held, is then unknown.
    """

    boot: str
    last_seq: int | None
    torn_bytes: int
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class Deleted:
    """Segments of one boot that retention deleted; `reason` is the setting that required it. `shipped` says that they
    were elsewhere too.

    `last_seq` and `events` are None if a seal is missing and the names do not say, and for files that were put aside.
    """

    boot: str
    first_seq: int
    last_seq: int | None
    events: int | None
    reason: str
    shipped: bool = False


@dataclass(frozen=True, slots=True)
class Unsynced:
    """Events of one boot whose sync failed: the disk may not have them."""

    boot: str
    first_seq: int
    last_seq: int


def join_losses(losses: list[Deleted | Unsynced]) -> list[Deleted | Unsynced]:
    """Join deletions that follow each other, have the same boot and reason, and know their counts."""
    joined: list[Deleted | Unsynced] = []
    for loss in losses:
        last = joined[-1] if joined else None
        if (
            isinstance(last, Deleted)
            and isinstance(loss, Deleted)
            and (last.boot, last.reason, last.shipped) == (loss.boot, loss.reason, loss.shipped)
            and last.events is not None
            and loss.events is not None
        ):
            joined[-1] = replace(last, last_seq=loss.last_seq, events=last.events + loss.events)
        else:
            joined.append(loss)
    return joined
