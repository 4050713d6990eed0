"""Names for SASL mechanisms and credential stores: contracts, SCRAM credentials, delegation tokens, client logins."""

from klamm.api.sasl import (
    CredentialStore,
    SaslAuthenticationError,
    SaslChallenge,
    SaslContext,
    SaslError,
    SaslEvaluation,
    SaslMechanism,
    SaslProof,
    SaslServer,
    SaslSuccess,
    SaslTask,
)
from klamm.shared.delegation_tokens import DELEGATION_TOKENS, DelegationToken, DelegationTokenCache
from klamm.shared.sasl_login import SaslAccount, SaslExchange
from klamm.shared.scram import MAX_ITERATIONS, MIN_ITERATIONS, SCRAM_CREDENTIALS, ScramCredential, ScramMechanism

__all__ = [
    "CredentialStore",
    "DELEGATION_TOKENS",
    "DelegationToken",
    "DelegationTokenCache",
    "MAX_ITERATIONS",
    "MIN_ITERATIONS",
    "SCRAM_CREDENTIALS",
    "SaslAccount",
    "SaslAuthenticationError",
    "SaslChallenge",
    "SaslContext",
    "SaslError",
    "SaslEvaluation",
    "SaslExchange",
    "SaslMechanism",
    "SaslProof",
    "SaslServer",
    "SaslSuccess",
    "SaslTask",
    "ScramCredential",
    "ScramMechanism",
]
