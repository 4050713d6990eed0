"""The authorizer `static`: rules from the configuration. Processors' and handlers' threads call it."""

from __future__ import annotations

from klamm_authorizers.authorizer_settings import StaticSettings
from klamm_authorizers.authorizing import IndexAuthorizer
from klamm_authorizers.index import AclIndex
from klamm_authorizers.rules import parse_rule


class StaticAuthorizer(IndexAuthorizer):
    """The authorizer `static`. It decides like `acl`, but only the configuration changes its rules.

    It refuses the ACL APIs.
    """

    def __init__(self, settings: StaticSettings) -> None:
        super().__init__(settings)
        self.index = _index_of(settings)

    def reconfigure(self, settings: StaticSettings) -> bool:
        """Apply new settings at once."""
        self._use(settings, _index_of(settings))
        return True


def _index_of(settings: StaticSettings) -> AclIndex:
    return AclIndex((binding for rule in settings.rules for binding in parse_rule(rule)), "static_rule")
