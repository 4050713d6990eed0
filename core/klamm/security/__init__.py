"""Who is on the other side: principals and the authorizer contract."""

from klamm.security.principal import ANONYMOUS, KafkaPrincipal

__all__ = ["ANONYMOUS", "KafkaPrincipal"]
