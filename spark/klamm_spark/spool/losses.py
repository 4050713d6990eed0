"""Events that a spool has lost, or may have lost. `Spool` collects them, and `Stream` records each as an `audit_gap`
event.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Recovered:
    """A boot that ended in a crash: its last durable event, and the number of torn bytes that were cut off after it.

    If one of the boot's files could not be read, `unreadable` names the file and the reason. It is then unknown how the
    boot ended, or which events the file held.
    """

    boot: str
    last_seq: int | None
    torn_bytes: int
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class Deleted:
    """Segments of one boot that retention deleted. `reason` is the setting that required it. If they were `shipped`,
    the lake has a copy.

    `last_seq` and `events` are None for an unreadable file, and if a seal is missing. For a missing seal, `last_seq`
    may be known from the name of the next segment.
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
    """Join deletions of adjacent segments, if they have the same boot and reason, and their numbers of events are
    known.
    """
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
