"""The bit fields in which responses tell what the asker may do: without an authorizer, everything there is.

A bit's number is Kafka's `AclOperation` code.
"""

from __future__ import annotations

from typing import Final

NOT_ASKED: Final = -(2**31)

(
    _READ,
    _WRITE,
    _CREATE,
    _DELETE,
    _ALTER,
    _DESCRIBE,
    _CLUSTER_ACTION,
    _DESCRIBE_CONFIGS,
    _ALTER_CONFIGS,
    _IDEMPOTENT_WRITE,
) = (1 << code for code in range(3, 13))

TOPIC_OPERATIONS: Final = _READ | _WRITE | _CREATE | _DELETE | _ALTER | _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS
CLUSTER_OPERATIONS: Final = (
    _CREATE | _ALTER | _DESCRIBE | _CLUSTER_ACTION | _DESCRIBE_CONFIGS | _ALTER_CONFIGS | _IDEMPOTENT_WRITE
)
