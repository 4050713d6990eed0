"""Opens the delegation tokens of a broker, once, on the thread that opens the broker.

Without a secret key, the modules that make and keep tokens are not imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from klamm import ErrorCode, KafkaError, ServerContext
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.security.token_secret import read_secret_key

if TYPE_CHECKING:
    from klamm_broker.security.delegation_tokens import DelegationTokens

_METRICS: Final = "klamm:type=DelegationTokens,name="


class NoTokens:
    """Stands in for `DelegationTokens` if there is no key. Any thread may call it."""

    most_of_one_owner: Final = 0

    def create(self, *_: object) -> NoReturn:
        """Raise KafkaError(DELEGATION_TOKEN_AUTH_DISABLED)."""
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)

    renew = expire = all = hmac_of = create

    def remove_expired(self, now_ms: int) -> None:
        """Do nothing."""

    def __len__(self) -> int:
        return 0


Tokens: TypeAlias = "DelegationTokens | NoTokens"


def open_delegation_tokens(settings: BrokerSettings, server: ServerContext) -> Tokens:
    """Load the tokens of a broker. Raises OSError or ValueError if the key cannot be read."""
    tokens = _tokens(settings, server)
    gauge = server.services.metrics.gauge
    gauge(_METRICS + "Count", "Delegation tokens.", lambda: len(tokens))
    gauge(
        _METRICS + "MostOfOneOwner",
        "Delegation tokens of the owner that has the most.",
        lambda: tokens.most_of_one_owner,
    )
    return tokens


def _tokens(settings: BrokerSettings, server: ServerContext) -> Tokens:
    key = read_secret_key(settings.delegation_token_secret_key_file, settings.delegation_token_secret_key_env)
    if key is None:
        return NoTokens()
    from klamm_broker.security.delegation_tokens import DelegationTokens

    tokens = DelegationTokens(settings, key, server.services.shared, server.clock, server.random_bytes)
    tokens.load()
    return tokens
