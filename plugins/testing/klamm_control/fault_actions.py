"""`FaultActions`: the rules of faults."""

from __future__ import annotations

from typing import Annotated, Any, Unpack

from klamm_control.controlled import Actions, limited
from klamm_control.routes import route
from klamm_control.values import Done, Fault, FaultRule, TimeoutS


class FaultActions(Actions):
    """The rules of faults, for a server with the filter `faults`."""

    @route("GET", "/faults")
    def faults(self) -> list[Fault]:
        """Return the active rules of faults."""
        return [_fault(one) for one in self._server.faults.faults]

    @route("POST", "/faults")
    def add_fault(self, **rule: Unpack[FaultRule]) -> Fault:
        """Add a rule: requests that match it get a fault."""
        options: dict[str, Any] = dict(rule)
        return _fault(self._server.faults.add(options.pop("kind"), **options))

    @route("DELETE", "/faults")
    def clear_faults(self) -> Done:
        """Remove all rules of faults."""
        self._server.faults.clear()
        return {}

    @route("POST", "/faults/chaos")
    def chaos(self, seed: int = 0, times: Annotated[float, "Multiplies the probabilities."] = 1.0) -> list[Fault]:
        """Add a fault of every kind, each at random with a small probability. The same seed gives the same faults."""
        return [_fault(one) for one in self._server.faults.chaos(seed=seed, times=times)]

    @route("GET", "/faults/{name}")
    def fault(self, name: str, wait: int = 0, timeout_s: TimeoutS = 10.0) -> Fault:
        """Return one rule. With `wait`, wait until it has fired that many times."""
        fault = self._named(name)
        if wait:
            fault.wait(wait, timeout_s=limited(timeout_s))
        return _fault(fault)

    @route("DELETE", "/faults/{name}")
    def remove_fault(self, name: str) -> Fault:
        """Remove a rule of faults."""
        fault = self._named(name)
        fault.remove()
        return _fault(fault)

    def _named(self, name: str) -> Any:
        for one in self._server.faults.faults:
            if one.name == name:
                return one
        raise LookupError(f'there is no fault "{name}"')


def _fault(fault: Any) -> Fault:
    return {"name": fault.name, "kind": fault.kind.value, "fired": fault.fired}
