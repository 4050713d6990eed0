"""Names for SASL mechanisms and credential stores: contracts, SCRAM credentials, delegation tokens, client logins."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    from klamm.shared.delegation_tokens import DelegationToken, DelegationTokenCache
    from klamm.shared.sasl_login import SaslAccount, SaslExchange
    from klamm.shared.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential, ScramMechanism
    from klamm.shared.tables import DELEGATION_TOKENS, SCRAM_CREDENTIALS

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

if not TYPE_CHECKING:
    # As in `klamm.shared`: a broker without logins uses the names of two tables.
    _NAMES = {
        "shared.delegation_tokens": ("DelegationToken", "DelegationTokenCache"),
        "shared.sasl_login": ("SaslAccount", "SaslExchange"),
        "shared.scram": ("MAX_ITERATIONS", "MIN_ITERATIONS", "ScramCredential", "ScramMechanism"),
        "shared.tables": ("DELEGATION_TOKENS", "SCRAM_CREDENTIALS"),
    }
    _MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"klamm.{_MODULE_OF.get(name, 'api.sasl')}"), name)
