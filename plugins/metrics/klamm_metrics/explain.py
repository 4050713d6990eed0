"""The command `klamm explain`: names the stage that limits a running server now, with its numbers and remedies."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from klamm_metrics.culprits import client_of
from klamm_metrics.limiting_stages import NEEDED, Finding, findings
from klamm_metrics.rates import Row, with_rates
from klamm_metrics.running_server import RunningServer, UnreachableError, add_server_arguments, find
from klamm_metrics.snapshot import Difference
from klamm_metrics.top import fetch
from klamm_metrics.words import printable


def main(arguments: list[str]) -> int:
    """Print the stages that limit the server, the worst first. Return the exit code."""
    parser = argparse.ArgumentParser(
        prog="klamm explain",
        description="Name the stage that limits a running server now, and who or what to look at.",
    )
    add_server_arguments(parser)
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument(
        "--interval", metavar="SECONDS", type=float, default=3.0, help="time between the two samples; default: 3"
    )
    parser.add_argument("--token-file", metavar="FILE", type=Path, help="default: that of the TOML file")
    options = parser.parse_args(arguments)
    if options.interval <= 0:
        parser.error("--interval must be more than 0")
    try:
        seen, looked = observe(find(options.server, options.token_file), options.interval)
        found = findings(seen, looked)
    except UnreachableError as error:
        print(f"klamm explain: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    if options.json:
        print(json.dumps([asdict(one) for one in found], indent=1))
    else:
        print("\n".join(map(_lines, found)) or _idle(looked["connections"]))
    return 0


def _idle(connections: list[Row]) -> str:
    """Return the line for a server that nothing limits, with the client that uses the most time."""
    line = "nothing limits this server now"
    used: Counter[str] = Counter()
    for row in connections:
        used[client_of(row)] += row["processor_share"] + row["handler_share"]
    for client, share in used.most_common(1):
        line += f"; the busiest: {printable(client)} with {share:.1%} of a thread"
    return line


def _lines(finding: Finding) -> str:
    return "\n  ".join(
        (f"{finding.stage}: {printable(finding.text)}", *(f"look at: {printable(one)}" for one in finding.look_at))
    )


def observe(
    server: RunningServer, interval_s: float, sleep: Callable[[float], None] = time.sleep
) -> tuple[Difference, Row]:
    """Take two samples of a server, an interval apart. Raises UnreachableError."""
    before, earlier = fetch(server), server.connections()
    sleep(interval_s)
    now, later = fetch(server), server.connections()
    if now.value(NEEDED) is None:
        raise UnreachableError(f"{server.metrics_url} has no {NEEDED}: see [prometheus] include")
    return Difference(now, before), with_rates(later, earlier, now.time_s - before.time_s)
