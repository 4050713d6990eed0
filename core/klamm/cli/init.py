"""The command `klamm init`, which writes a TOML file to start from."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Final

from klamm.config.plugin_registry import PluginRegistry

STARTER = """\
# klamm.toml: `klamm check klamm.toml` says whether it is right, `klamm serve klamm.toml` starts it.
# Every key and its default: docs/reference/settings.md, or `klamm plugins --settings`.

[server]
data_dir = "klamm-data"            # relative to this file; without it, a temporary directory

[listeners.internal]               # each listener names the parts it is made of
bind = "127.0.0.1:9092"
api_set = "broker"

# A second listener for the same broker, with a limit on connections per address:
#
# [listeners.public]
# bind = "127.0.0.1:9093"          # 0.0.0.0 lets other machines connect: name an authenticator and an authorizer then
# gates = ["connection_quota"]
# api_set = "broker"
#
# [listeners.public.connection_quota]
# max_connections_per_ip = 100
# overrides = { "10.20.0.0/16" = 2000 }

[broker]                           # Kafka's own names, quoted or dotted
num.partitions = 3
"log.retention.ms" = 604_800_000
"""


_SERVER: Final = """\
[server]
data_dir = "klamm-data"            # relative to this file; without it, a temporary directory
"""
_FRONT: Final = """\
[listeners.front]
bind = "127.0.0.1:9093"            # 0.0.0.0:9093 for other machines, with advertise = "HOST:9093"
"""
_TLS: Final = """\
transport = "ssl"
ssl.certificate = "certs/server.pem"
"""
_SCRAM: Final = """\
authenticator = "sasl"
sasl.mechanisms = ["SCRAM-SHA-512"]
sasl.credential_stores = ["file"]
sasl.file.path = "users"
authorizer = "static"
static.super_users = ["User:admin"]
static.rules = [                   # authorizer = "acl" has Kafka's ACLs instead, which clients change
    "allow User:alice READ,WRITE,CREATE,DESCRIBE TOPIC:*",
    "allow User:alice READ,DESCRIBE GROUP:*",
]
"""
_GATEWAY: Final = """
[gateway]
bootstrap = ["127.0.0.1:19092"]    # nodes of the cluster
node_ports = "9094-9096"           # one for each node, from the first on
first_node_id = 1
"""


def starter(*, tls: bool, scram: bool, gateway: bool, folder: Path = Path()) -> str:
    """Return the text of a TOML file in `folder` with these parts; without parts, a broker on this machine."""
    if not (tls or scram or gateway):
        return STARTER
    files = [f"#   {command}\n" for command in commands_before(tls=tls, scram=scram, folder=folder)]
    head = STARTER.split("\n\n", 1)[0] + "\n"
    if files:
        head += "# Make the files that it names first:\n#\n" + "".join(files)
    front = [_FRONT, _TLS if tls else "", _SCRAM if scram else ""]
    front.append('api_set = "gateway"\n' + _GATEWAY if gateway else 'api_set = "broker"\n')
    return "\n".join([head, *([] if gateway else [_SERVER]), "".join(front)])


def commands_before(*, tls: bool, scram: bool, folder: Path) -> list[str]:
    """Return the commands that make the files named in the TOML file; paths are relative to the current directory."""
    certs, users = (shlex.quote(str(folder / name)) for name in ("certs", "users"))
    made = [f"klamm certs {certs}"] if tls else []
    return [*made, *(f"klamm users add {users} {user}" for user in ("admin", "alice") if scram)]


def run(options: argparse.Namespace, plugins: PluginRegistry) -> int:
    """Write the file unless it exists. Return the exit code."""
    path = Path(options.file)
    text = starter(tls=options.tls, scram=options.scram, gateway=options.gateway, folder=path.parent)
    try:
        with path.open("x", encoding="utf-8") as file:
            try:
                file.write(text)
                file.flush()
            except OSError:
                # An incomplete file must not remain, because the next try would not overwrite it.
                path.unlink(missing_ok=True)
                raise
    except FileExistsError:
        print(f"klamm: {path} exists; it was not changed", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"klamm: {path} cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    before = commands_before(tls=options.tls, scram=options.scram, folder=path.parent)
    print(f"{path} written; next: {'; '.join([*before, f'klamm serve {shlex.quote(str(path))}'])}")
    return 0
