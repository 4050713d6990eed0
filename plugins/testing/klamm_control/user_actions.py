"""`UserActions`: users, access control lists, and the settings that clients need to connect."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Unpack

from klamm.testing import settings_for
from klamm_control.controlled import Actions
from klamm_control.routes import route
from klamm_control.values import AccessRule, Acl, Done, User

_Client = Literal["confluent-kafka", "confluent-kafka-javascript", "go", "java", "kafka-python", "kafkajs"]


class UserActions(Actions):
    """Users of a server that was started with `--secure`, and the client settings for any server."""

    @route("POST", "/users")
    def add_user(self, name: str, password: str = "secret") -> User:
        """Create a user, or change its password."""
        self._server.users.add(name, password)
        return {"name": name, "password": password}

    @route("GET", "/client-settings/{client}")
    def client_settings(
        self,
        client: Annotated[_Client, "Name of a client library."],
        user: Annotated[str | None, "The user: admin by default, if the server has users."] = None,
    ) -> dict[str, Any]:
        """Return the settings that a client library needs to connect, in the library's format."""
        server = self._server
        login = server.users.login(user or "admin") if user is not None or server.has_users else None
        return settings_for(client, server.bootstrap, login)

    @route("GET", "/acls")
    def acls(self, user: str | None = None) -> list[Acl]:
        """Return the ACLs, all or those of a user."""
        return [_acl(one) for one in self._server.acls.all(user)]

    @route("POST", "/acls/allow")
    def allow(self, **rule: Unpack[AccessRule]) -> Acl:
        """Allow a user an operation."""
        options: dict[str, Any] = dict(rule)
        return _acl(self._server.acls.allow(**options))

    @route("POST", "/acls/deny")
    def deny(self, **rule: Unpack[AccessRule]) -> Acl:
        """Deny a user an operation, whatever other ACLs allow."""
        options: dict[str, Any] = dict(rule)
        return _acl(self._server.acls.deny(**options))

    @route("DELETE", "/acls")
    def clear_acls(self, user: str | None = None) -> Done:
        """Remove all ACLs, or those of a user."""
        self._server.acls.clear(user)
        return {}


def _acl(binding: Any) -> Acl:
    return {
        "principal": binding.principal,
        "host": binding.host,
        "operation": binding.operation.name,
        "permission": binding.permission.name,
        "resource_type": binding.resource_type.name,
        "name": binding.resource_name,
        "pattern_type": binding.pattern_type.name,
    }
