"""`python -m klamm_spark`: runs `klamm audit` without klamm's own command. `spark-submit` starts it too."""

from __future__ import annotations

import sys

from klamm import ConfigError
from klamm_spark.cli import EXIT_USAGE, main


def run() -> int:
    """Run `klamm audit` with this process's arguments. Return its exit code."""
    try:
        return main(sys.argv[1:])
    except ConfigError as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(run())
