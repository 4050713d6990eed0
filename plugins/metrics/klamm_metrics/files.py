"""The commands `klamm metrics dashboard` and `klamm metrics alerts`: print files that come with klamm."""

from __future__ import annotations

import argparse
import sys
from importlib.resources import files
from typing import Final

FILES: Final = {"dashboard": "klamm-dashboard.json", "alerts": "klamm-alerts.yml"}


def read(what: str) -> str:
    """Return the text of the Grafana `dashboard` or the Prometheus `alerts`."""
    return (files("klamm_metrics") / FILES[what]).read_text(encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Print a file. Return the exit code."""
    parser = argparse.ArgumentParser(prog="klamm metrics", description=__doc__)
    parser.add_argument("what", choices=FILES, help="a dashboard for Grafana, or alert rules for Prometheus")
    sys.stdout.write(read(parser.parse_args(arguments).what))
    return 0
