"""For authorizers, and for handler sets that ask them: operations, resources and ACL bindings, by Kafka's names."""

from klamm.api.authorizer import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    Authorizer,
    PatternType,
    ResourceType,
)

__all__ = [
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermission",
    "Authorizer",
    "CLUSTER_NAME",
    "PatternType",
    "ResourceType",
    "WILDCARD",
]
