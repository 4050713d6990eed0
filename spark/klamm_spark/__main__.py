"""`python -m klamm_spark`, and what `spark-submit` runs: `klamm audit` without klamm's own command."""

from __future__ import annotations

import sys

from klamm import ConfigError
from klamm_spark.cli import EXIT_USAGE, main


def run() -> int:
    """Return the exit code of `klamm audit` with this process's arguments."""
    try:
        return main(sys.argv[1:])
    except ConfigError as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(run())
