"""The templates of `klamm plugins new`. Words in capitals, e.g. NAME, MODULE and CLASS, are replaced."""

from typing import Final

from klamm.cli.templates import clients, connections, requests, servers
from klamm.cli.templates.package import Template

KINDS: Final[dict[str, Template]] = {
    "filter": requests.FILTER,
    "api_set": requests.API_SET,
    "observer": requests.OBSERVER,
    "gate": connections.GATE,
    "throttle": servers.THROTTLE,
    "authorizer": connections.AUTHORIZER,
    "transport": clients.TRANSPORT,
    "authenticator": clients.AUTHENTICATOR,
    "sasl_mechanism": clients.SASL_MECHANISM,
    "credential_store": clients.CREDENTIAL_STORE,
    "assigner": servers.ASSIGNER,
    "scheduler": servers.SCHEDULER,
    "extension": connections.EXTENSION,
    "command": servers.COMMAND,
}
"""The templates by the values of `--kind`."""
