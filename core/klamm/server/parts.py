"""The parts of a server that belong to no listener: its request scheduler, its handler sets and its extensions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from klamm.api.context import ServerServices
from klamm.api.part import Part
from klamm.api.part_failures import name_of
from klamm.config.differences import differences_of_part
from klamm.config.plan import PartPlan
from klamm.logs.causes import cause

log = logging.getLogger("klamm.server")


class StartError(Exception):
    """Raised if the server cannot start, after everything has been closed; the message has the part and the cause."""


@dataclass(slots=True)
class _OpenPart:
    role: str
    table: str
    plan: PartPlan
    part: Part[Any]


class ServerParts:
    """Opens, reloads, reconfigures and closes parts, on the thread that starts, reloads or stops the server.

    `open` raises the exceptions of a part. The other methods log them and go on with the other parts.
    """

    def __init__(self, services: ServerServices) -> None:
        self._services = services
        self._open: list[_OpenPart] = []

    @contextmanager
    def needed(self, role: str, plan: PartPlan) -> Iterator[None]:
        """Turn an exception of a part in the block into a StartError that names its role and distribution."""
        try:
            yield
        except Exception as error:
            log.debug("%s failed at start", role, exc_info=True)
            text = f"{role} ({plan.distribution}): {cause(error)}"
            self._services.emit_admin_event("plugin_failed", text, failed=True)
            raise StartError(text) from error

    def open(self, role: str, table: str, plan: PartPlan, part: Part[Any], host: object) -> None:
        """Open a part. `role` names it in messages, `table` is the name of the table with its settings.

        Raises StartError.
        """
        with self.needed(role, plan):
            part.open(host)
        self._open.append(_OpenPart(role, table, plan, part))

    def attempt(self, part: Part[Any], call: Callable[[], object]) -> None:
        """Call a part, and log its exceptions."""
        try:
            call()
        except Exception:
            log.exception("%s failed", name_of(part))

    def reload(self) -> list[str]:
        """Let every part read its files again; return one line for each part that failed."""
        problems = []
        for one in self._open:
            try:
                one.part.reload()
            except Exception as error:
                log.exception("reload of %s failed", one.role)
                problems.append(f"{one.role}: {error}")
        return problems

    def reconfigure(
        self, new_plan: Callable[[PartPlan], PartPlan | None]
    ) -> tuple[list[tuple[PartPlan, PartPlan]], list[str], list[str]]:
        """Offer each part its settings in a new plan; return the changed plans, the applied keys, and the problems."""
        changed: list[tuple[PartPlan, PartPlan]] = []
        taken: list[str] = []
        problems = []
        for one in self._open:
            new = new_plan(one.plan)
            if new is None:
                continue
            try:
                new = one.plan.with_live(new, one.part.live_keys)
                if new == one.plan or new.parts != one.plan.parts:
                    continue
                if not one.part.reconfigure(new.settings):
                    continue
            except Exception as error:
                log.exception("%s cannot take new settings", one.role)
                problems.append(f"[{one.table}] stays as it was: {error}")
                self._services.emit_admin_event("config_reload_failed", f"{one.role}: {error}", failed=True)
                continue
            changed.append((one.plan, new))
            taken += map(str, differences_of_part(one.table, one.plan, new))
            one.plan = new
        return changed, taken, problems

    def close(self, parts: Callable[[Part[Any]], bool]) -> None:
        """Close the open parts that `parts` selects, the last opened first."""
        for one in reversed([one for one in self._open if parts(one.part)]):
            self._open.remove(one)
            try:
                one.part.close()
            except Exception:
                log.exception("%s failed to close", one.role)
