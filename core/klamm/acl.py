"""Operations, resources and ACL bindings by Kafka's names, for authorizers and for handler sets that call them."""

from klamm.api.acl import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    Verdict,
)
from klamm.api.authorizer import Authorizer, ClusterAcls
from klamm.server.later_authorizer import LaterAuthorizer, LaterSettings

__all__ = [
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermission",
    "Authorizer",
    "CLUSTER_NAME",
    "ClusterAcls",
    "LaterAuthorizer",
    "LaterSettings",
    "PatternType",
    "ResourceType",
    "Verdict",
    "WILDCARD",
]
