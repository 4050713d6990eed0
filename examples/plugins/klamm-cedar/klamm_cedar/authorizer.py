"""The authorizer `cedar`: evaluates policies in this process, on the threads of `LaterAuthorizer`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cedarpy import Entities, PolicySet, is_authorized_batch

from klamm import KafkaPrincipal, ListenerContext, setting
from klamm.acl import AclOperation, LaterAuthorizer, LaterSettings, ResourceType

_OPERATIONS = [one for one in AclOperation if one > AclOperation.ALL]


def _word(name: str) -> str:
    """Return a name as Kafka's commands write it: `DescribeConfigs` for `DESCRIBE_CONFIGS`."""
    return name.title().replace("_", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class CedarSettings(LaterSettings):
    """The table `[cedar]` or `[listeners.NAME.cedar]`."""

    policies: Path = setting(doc="File of policies. Read again at SIGHUP.")
    entities: Path | None = setting(
        None, doc="File of entities as JSON, e.g. the groups of users. Read again at SIGHUP."
    )


class _Rules(NamedTuple):
    policies: PolicySet
    entities: Entities


class CedarAuthorizer(LaterAuthorizer):
    """Allows the operations that the policies permit. A policy that fails denies, because it may be a `forbid`."""

    settings: CedarSettings

    def open(self, listener: ListenerContext) -> None:
        """Read the files. Raises OSError or ValueError."""
        self._rules = self._read()
        super().open(listener)

    def reload(self) -> None:
        """Read the files again, and drop the decisions of the old files. Raises OSError or ValueError."""
        self._rules = self._read()
        self.forget()

    def permitted(
        self, principal: KafkaPrincipal, host: str, resource_type: ResourceType, resource_name: str
    ) -> list[AclOperation]:
        """Evaluate the policies for each operation. Raises ValueError if a policy fails."""
        rules = self._rules
        asked = {
            "principal": {"type": principal.type, "id": principal.name},
            "resource": {"type": _word(resource_type.name), "id": resource_name},
            "context": {"host": host, "name": resource_name},
        }
        requests = [asked | {"action": {"type": "Action", "id": _word(one.name)}} for one in _OPERATIONS]
        results = is_authorized_batch(requests, rules.policies, rules.entities)
        for result in results:
            if result.diagnostics.errors:
                raise ValueError(f"a policy fails: {result.diagnostics.errors[0]}")
        return [one for one, result in zip(_OPERATIONS, results, strict=True) if result.allowed]

    def _read(self) -> _Rules:
        policies, entities = self.settings.policies, self.settings.entities
        try:
            return _Rules(
                PolicySet.from_str(policies.read_text(encoding="utf-8")),
                Entities.from_json_str(entities.read_text(encoding="utf-8") if entities is not None else "[]"),
            )
        except ValueError as error:
            raise ValueError(f"{policies}: {error}") from error
