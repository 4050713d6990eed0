"""`klamm init`: a file to start from."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

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


def run(options: argparse.Namespace, plugins: PluginRegistry) -> int:
    """Write the file unless it exists. Return the exit code."""
    path = Path(options.file)
    try:
        with path.open("x", encoding="utf-8") as file:
            try:
                file.write(STARTER)
                file.flush()
            except OSError:
                # Half a file would stop the next try.
                path.unlink(missing_ok=True)
                raise
    except FileExistsError:
        print(f"klamm: {path} exists; it was not changed", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"klamm: {path} cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    print(f"{path} written; next: klamm serve {path}")
    return 0
