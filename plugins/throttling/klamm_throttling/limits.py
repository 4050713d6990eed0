"""`QuotaLimits`: finds the quota that applies to a client, in Kafka's order of precedence, for `manager`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from klamm.shared import QuotaEntity, Row, WorkerShare, quotas_by_entity
from klamm_throttling.throttling_settings import DEFAULT_NAME, ClientQuotaSettings

DEFAULT: Final = None
"""The name of a default entity in the table of quotas."""
_ABSENT: Final = ""

Pair: TypeAlias = tuple[str | None, str | None]
"""User and client id of a quota. Each is a name, DEFAULT, or the empty string if the quota does not depend on it."""


class Limit(NamedTuple):
    """The value of a quota. Clients with this `user` and `client_id` share it; an empty string stands for all."""

    value: float
    user: str
    client_id: str


class QuotaLimits:
    """All quotas: the table's quotas, and the settings' quotas that the table does not override. It never changes.

    If there are several workers, each of them gets an equal share of every quota.
    """

    def __init__(
        self, settings: ClientQuotaSettings, rows: Mapping[str, Row], share: WorkerShare | None = None
    ) -> None:
        self._share = share or WorkerShare()
        self._quotas: dict[Pair, dict[str, float]] = {}
        for user, quotas in settings.users.items():
            self._put((_name(user), _ABSENT), quotas)
        for client_id, quotas in settings.clients.items():
            self._put((_ABSENT, _name(client_id)), quotas)
        for user, clients in settings.user_clients.items():
            for client_id, quotas in clients.items():
                self._put((_name(user), _name(client_id)), quotas)
        for entity, quotas_of_entity in quotas_by_entity(rows):
            if "ip" not in entity:
                self._put(_pair(entity), quotas_of_entity)
        self.keys = frozenset(key for quotas in self._quotas.values() for key in quotas)

    def _put(self, pair: Pair, quotas: Mapping[str, float]) -> None:
        self._quotas.setdefault(pair, {}).update(quotas)

    def find(self, key: str, user: str, client_id: str) -> Limit | None:
        """Return the quota `key` of a client, from the first level in `_LEVELS` that has it, like Kafka.

        A client without a client id can only have quotas of users.
        """
        if key not in self.keys:
            return None
        candidates = _LEVELS if client_id else _USER_LEVELS
        for user_of, client_of, by_user, by_client in candidates:
            pair = (user if user_of else user_of, client_id if client_of else client_of)
            value = self._quotas.get(pair, _NOTHING).get(key)
            if value is not None:
                return Limit(self._share.of_rate(value), user if by_user else "", client_id if by_client else "")
        return None


_NAMED: Final = "name"
_NOTHING: Final[Mapping[str, float]] = {}
# For each level: the user and the client id of its quotas, and two flags, for users and for client ids. A flag is
_LEVELS: Final[tuple[tuple[str | None, str | None, bool, bool], ...]] = (
    # True if each of them is counted separately.
    (_NAMED, _NAMED, True, True),
    (_NAMED, DEFAULT, True, True),
    (_NAMED, _ABSENT, True, False),
    (DEFAULT, _NAMED, True, True),
    (DEFAULT, DEFAULT, True, True),
    (DEFAULT, _ABSENT, True, False),
    (_ABSENT, _NAMED, False, True),
    (_ABSENT, DEFAULT, False, True),
)
_USER_LEVELS: Final = tuple(level for level in _LEVELS if level[1] == _ABSENT)


def _name(text: str) -> str | None:
    return DEFAULT if text == DEFAULT_NAME else text


def _pair(entity: QuotaEntity) -> Pair:
    return entity.get("user", _ABSENT), entity.get("client-id", _ABSENT)
