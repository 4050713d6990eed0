"""`ParentSockets`: the listening sockets of all workers, which their parent binds and keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from klamm.config.plan import ListenerPlan, ServerPlan
from klamm.server.activation import passed_sockets
from klamm.server.listening import BindError, ListeningSocket, bind_all, duplicates

Sockets = Mapping[str, tuple[ListeningSocket, ...]]


class ParentSockets:
    """The sockets by listener. Only the parent's loop calls it, in the parent's process.

    While a reload replaces the workers, it has the sockets of the earlier plan and of the new one.
    """

    def __init__(self) -> None:
        self._by_listener: dict[str, tuple[ListeningSocket, ...]] = {}

    def open(self, plan: ServerPlan) -> None:
        """Take the sockets that the service manager has passed, and bind the others. Raises BindError, StartError."""
        self._by_listener.update(passed_sockets(plan))
        for listener in plan.listeners:
            if listener.name not in self._by_listener:
                self._by_listener[listener.name] = bind_all(listener, plan.more_ports(listener.api_set))

    def add(self, old: ServerPlan, new: ServerPlan) -> None:
        """Bind the listeners that only the new plan has. Raises ConfigError, and then has bound none."""
        added = [one for one in new.listeners if one.name not in self._by_listener]
        if added and new.checked is not None:
            new.checked({one.configured_as or one.name for one in added})
        for listener in added:
            try:
                self._by_listener[listener.name] = self._bound(listener, old, new)
            except BindError as error:
                self.keep(old)
                raise new.error(("listeners", listener.configured_as or listener.name, "bind"), str(error)) from error

    def _bound(self, listener: ListenerPlan, old: ServerPlan, new: ServerPlan) -> tuple[ListeningSocket, ...]:
        """Bind a listener, or take over the sockets of a removed listener with the same address."""
        staying = {one.name for one in new.listeners}
        for one in old.listeners:
            if one.name not in staying and one.bind == listener.bind and one.bind[1]:
                return tuple(copy for each in self._by_listener[one.name] for copy in duplicates(each))
        return bind_all(listener, new.more_ports(listener.api_set))

    def keep(self, plan: ServerPlan) -> None:
        """Close the sockets of listeners that a plan does not have."""
        kept = {one.name for one in plan.listeners}
        for name in [name for name in self._by_listener if name not in kept]:
            for one in self._by_listener.pop(name):
                one.close()

    def of(self, plan: ServerPlan) -> Sockets:
        """Return the sockets for a worker with that plan. The parent keeps them open, and alone closes them."""
        return {
            one.name: tuple(replace(each, file=None) for each in self._by_listener[one.name]) for one in plan.listeners
        }

    @property
    def addresses(self) -> dict[str, str]:
        """Return the address of each listener."""
        return {name: str(listening[0].bound) for name, listening in self._by_listener.items()}

    def close(self) -> None:
        """Close all sockets; may be called twice."""
        for listening in self._by_listener.values():
            for one in listening:
                one.close()
