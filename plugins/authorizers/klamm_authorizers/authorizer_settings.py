"""Settings of the authorizers `acl` and `static`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from klamm import setting
from klamm.config import ListenerSecurity
from klamm_authorizers.rules import check_principal, parse_rule


def _check_super_users(users: tuple[str, ...]) -> str | None:
    for user in users:
        try:
            check_principal(user)
        except ValueError as error:
            return str(error)
    return None


def _check_rules(rules: tuple[str, ...]) -> str | None:
    wrong = []
    for number, rule in enumerate(rules, 1):
        try:
            parse_rule(rule)
        except ValueError as error:
            wrong.append(f'rule {number}, "{rule}": {error}')
    return "; ".join(wrong) or None


@dataclass(frozen=True, slots=True)
class AclSettings:
    """`[acl]` or `[listeners.NAME.acl]`."""

    rules: str = setting(
        "own",
        doc="Source of the rules: `own` are the rules that klamm keeps, `cluster` those of the cluster behind the "
        "listener's gateway, which requests them. Until the gateway has the rules, only `super_users` may do anything.",
        choices=("own", "cluster"),
    )
    super_users: tuple[str, ...] = setting(
        (), doc="Principals that may do everything, e.g. `User:admin`.", kafka="super.users", check=_check_super_users
    )
    allow_everyone_if_no_acl_found: bool = setting(
        False, doc="Allow everything on resources without ACLs.", kafka="allow.everyone.if.no.acl.found"
    )

    def warnings(self, listener: ListenerSecurity) -> Iterator[tuple[str, str]]:
        """Warn if the rules should come from a cluster and the listener has none behind it."""
        if self.rules == "cluster" and not listener.has_cluster_acls:
            yield (
                "rules",
                "the listener's handler set has no cluster behind it, so only super_users may do anything;"
                ' "own" uses the rules that this server keeps',
            )


@dataclass(frozen=True, slots=True)
class StaticSettings:
    """`[static]` or `[listeners.NAME.static]`."""

    rules: tuple[str, ...] = setting(
        (),
        doc="`allow|deny PRINCIPAL OPERATION,… RESOURCE:NAME [from HOST]`; a NAME that ends in `*` is a prefix.",
        check=_check_rules,
    )
    super_users: tuple[str, ...] = setting(
        (), doc="Principals that may do everything, e.g. `User:admin`.", kafka="super.users", check=_check_super_users
    )
    allow_everyone_if_no_acl_found: bool = setting(
        False, doc="Allow everything on resources without rules.", kafka="allow.everyone.if.no.acl.found"
    )
