"""`ListenerSecurity`: facts about a listener that settings use to report warnings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """The protection of a listener, for the method `warnings` of a settings class (see `setting`).

    `loopback`           it listens at an address to which only this machine can connect.
    `encrypted`          its transport encrypts what it sends.
    `proves_principals`  its transport can verify the identity of a client, e.g. by a certificate.
    `authorized`         it has an authorizer.
    `has_cluster_acls`   its handler set knows the ACLs of a cluster behind it (`Provider.has_cluster_acls`).
    """

    name: str
    loopback: bool
    encrypted: bool
    proves_principals: bool
    authorized: bool
    has_cluster_acls: bool = False
