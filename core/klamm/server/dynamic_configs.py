"""`DynamicConfigs`: values of settings that AlterConfigs changes while the server runs; they override the file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

from klamm.api.described_config import DescribedConfig
from klamm.config.described_config import described_configs, dynamic_settings, puts_of
from klamm.config.plan import ServerPlan
from klamm.config.problems import ConfigError
from klamm.runtime.scheduler import Scheduler


class DynamicConfigs:
    """The dynamic values of one server, and the plan without them.

    A change is checked as a whole: the plan is made again from the file, the command line and the change. The
    scheduler's thread applies the differences, as at SIGHUP. The caller's thread cannot, because it may be a handler
    thread that the change has to wait for. A handler set may pass its stored values while it opens; the listeners are
    then made with these values.
    """

    def __init__(
        self,
        plan: ServerPlan,
        scheduler: Scheduler,
        *,
        current: Callable[[], ServerPlan],
        adopt: Callable[[ServerPlan], None],
        apply: Callable[[Callable[[], ServerPlan]], bool],
    ) -> None:
        """Set the functions: `current` returns the plan in use, `adopt` and `apply` put another plan into use.

        `adopt` is called before the listeners are made, `apply` afterwards. `apply` gets a function that returns the
        plan, and calls this function when no other change is being made. `apply` returns False if the change was not
        made as a whole.
        """
        self._scheduler = scheduler
        self._current = current
        self._adopt = adopt
        self._apply_plan = apply
        # The plan without dynamic values: from the file and the command line.
        self._static = plan
        self._values: dict[str, str] = {}
        self._of_nodes: dict[int, dict[str, str]] = {}
        # Protects the static plan and the values, so that a change is checked and stored in one step.
        self._lock = threading.Lock()
        self._started = False
        # False while the values are not in use. A change to the same values then applies them again.
        self._is_applied = True

    def started(self) -> None:
        """Note that the listeners exist. Further changes are applied to them."""
        self._started = True

    def configs(self) -> list[DescribedConfig]:
        """Return the settings without the dynamic values."""
        with self._lock:
            static = {each.name: each for each in described_configs(self._static)}
            # A reload of the file may have changed other settings too, which take effect at the next start.
            return [
                static.get(each.name, each) if each.dynamic else each for each in described_configs(self._current())
            ]

    def change(
        self, values: Mapping[str, str], validate_only: bool, of_nodes: Mapping[int, Mapping[str, str]] | None = None
    ) -> None:
        """Replace all dynamic values by these; `of_nodes` has the values of single nodes, by position.

        Raises ValueError if a value is wrong, and then changes nothing.
        """
        own = {node: dict(each) for node, each in (of_nodes or {}).items() if each}
        with self._lock:
            plan = self._plan_with(self._static, values, own)
            if validate_only or (self._is_applied and (values, own) == (self._values, self._of_nodes)):
                return
            self._values, self._of_nodes = dict(values), own
            if not self._started:
                self._adopt(plan)
                return
            self._is_applied = False
        self._scheduler.schedule(0, self._apply)

    def over(self, plan: ServerPlan) -> ServerPlan:
        """Return this plan, which a reload has made from the file, with the dynamic values added. Raises ValueError."""
        with self._lock:
            return self._over(plan)

    def follow(self, plan: ServerPlan) -> ServerPlan:
        """Replace the plan without dynamic values by a new one from the file; return the old one.

        Raises ValueError if the new plan does not fit the dynamic values, which a client may have changed since `over`.
        """
        with self._lock:
            self._over(plan)
            before, self._static = self._static, plan
            return before

    def _over(self, plan: ServerPlan) -> ServerPlan:
        known = dynamic_settings(plan)
        for name in (*self._values, *(name for own in self._of_nodes.values() for name in own)):
            if name.startswith("listener.name.") and name not in known:
                raise ValueError(f"a client has set {name}: delete it by AlterConfigs before its listener goes")
        return self._plan_with(plan, self._values, self._of_nodes)

    def _plan_with(
        self, plan: ServerPlan, values: Mapping[str, str], of_nodes: Mapping[int, Mapping[str, str]]
    ) -> ServerPlan:
        """Return the plan with these values, and with the further values of single nodes."""
        changed = self._changed(plan, values)
        for node, own in of_nodes.items():
            settings = dynamic_settings(plan)
            for name in own:
                if name in settings and not settings[name].described.per_node:
                    raise ValueError(f"{name}: all nodes of this process share it")
            listeners = {each.name: each for each in self._changed(plan, {**values, **own}).listeners}
            changed = replace(
                changed,
                listeners=tuple(listeners[each.name] if each.node == node else each for each in changed.listeners),
            )
        return changed

    @staticmethod
    def _changed(plan: ServerPlan, values: Mapping[str, str]) -> ServerPlan:
        if not values:
            return plan
        if plan.changed is None:
            raise ValueError("this server cannot change settings while it runs")
        try:
            return plan.changed(puts_of(plan, values))
        except ConfigError as error:
            raise ValueError(
                "; ".join(dict.fromkeys(f"{each.place}: {each.message}" for each in error.problems))
            ) from error

    def _apply(self) -> None:
        is_applied = self._apply_plan(self._planned)
        with self._lock:
            self._is_applied = is_applied

    def _planned(self) -> ServerPlan:
        with self._lock:
            return self._plan_with(self._static, self._values, self._of_nodes)
