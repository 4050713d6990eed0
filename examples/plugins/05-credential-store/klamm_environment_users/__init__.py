"""klamm-environment-users: the credential store `environment_users`.

klamm imports this module at every start, so it holds the hook alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_credential_stores() -> Iterator[Provider]:
    """Yield the names that a configuration can use, and the place of their code."""
    yield Provider(
        "environment_users",
        factory="klamm_environment_users.store:EnvironmentUsers",
        settings="klamm_environment_users.store:EnvironmentUsersSettings",
        summary="users from an environment variable",
    )
