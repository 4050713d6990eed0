"""For SASL mechanisms and credential stores: their contracts, SCRAM credentials and delegation tokens."""

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
from klamm.shared.scram import MAX_ITERATIONS, MIN_ITERATIONS, SCRAM_CREDENTIALS, ScramCredential, ScramMechanism

__all__ = [
    "CredentialStore",
    "DELEGATION_TOKENS",
    "DelegationToken",
    "DelegationTokenCache",
    "MAX_ITERATIONS",
    "MIN_ITERATIONS",
    "SCRAM_CREDENTIALS",
    "SaslAuthenticationError",
    "SaslChallenge",
    "SaslContext",
    "SaslError",
    "SaslEvaluation",
    "SaslMechanism",
    "SaslProof",
    "SaslServer",
    "SaslSuccess",
    "SaslTask",
    "ScramCredential",
    "ScramMechanism",
]
