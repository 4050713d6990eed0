"""DescribeUserScramCredentials, version 0 (KIP-554): the mechanisms of users and their iterations, without secrets.

Null or no users means all of them. Follows `ScramImage.describe`.

A user named twice: DUPLICATE_RESOURCE. No such user: RESOURCE_NOT_FOUND.

Authorization: DESCRIBE on the cluster.
"""

from __future__ import annotations

from collections import Counter

from klamm import ErrorCode, RequestContext
from klamm.acl import AclOperation
from klamm.sasl import ScramMechanism
from klamm.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from klamm_broker.security.authorization import require_cluster
from klamm_broker.services import BrokerServices


def scram_users(
    broker: BrokerServices, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """Describe users and their mechanisms. Raises KafkaError. Runs on the processor's thread, so it must not block."""
    require_cluster(context, AclOperation.DESCRIBE)
    context.expect_answer(len(broker.scram_credentials.rows))
    known: dict[str, list[CredentialInfo]] = {}
    for key, row in broker.scram_credentials.rows.items():
        mechanism, user = ScramMechanism.of_row_key(key)
        known.setdefault(user, []).append(CredentialInfo(mechanism.type_code, row["iterations"]))
    times = Counter(each.name for each in request.users or ())
    results = []
    for user in times or sorted(known):
        result = DescribeUserScramCredentialsResult(user)
        if times[user] > 1:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            result.error_message = (
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
            )
        elif user not in known:
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND
            result.error_message = f"Attempt to describe a user credential that does not exist: {user}"
        else:
            result.credential_infos = sorted(known[user], key=lambda info: info.mechanism)
        results.append(result)
    return DescribeUserScramCredentialsResponse(results=results)
