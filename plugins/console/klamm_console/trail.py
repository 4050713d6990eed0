"""The audit: its latest events, and events of the console's own acts. If there are several workers, they write it."""

from __future__ import annotations

import logging
from operator import itemgetter
from typing import Any, Final

from klamm import ServerServices
from klamm_console.worker_answers import answered

log = logging.getLogger("klamm.console")

_WITHIN_S: Final = 5.0


def latest_events(services: ServerServices) -> list[dict[str, Any]]:
    """Return the audit's latest events, of all workers if there are several."""
    if services.workers is not None:
        answers = services.workers.call("klamm_console.trail:latest_events", (), _WITHIN_S)
        rows = [{**row, "worker": number} for number, found in answers.items() for row in found or ()]
        return sorted(rows, key=itemgetter("time_us"), reverse=True)
    audit = services.shared.find("klamm.audit")
    return [] if audit is None else audit.latest()


def spool_of(services: ServerServices) -> str:
    """Return the folder of the audit's spool, which all workers share; an empty text if there is no audit.

    Raises OSError if no worker answers.
    """
    if services.workers is not None:
        return str(answered(services.workers.call_one("klamm_console.trail:spool_of", (), _WITHIN_S)))
    audit = services.shared.find("klamm.audit")
    return "" if audit is None else str(audit.settings.spool)


def emit(services: ServerServices, action: str, detail: str, failed: bool = False) -> bool:
    """Emit an administrative event. The parent of workers has no observers, so that one of the workers emits it."""
    if services.workers is None:
        services.emit_admin_event(action, detail, failed=failed)
        return True
    if services.workers.call_one("klamm_console.trail:emit", (action, detail, failed), _WITHIN_S):
        return True
    log.error("no worker has recorded the event %s: %s", action, detail)
    return False
