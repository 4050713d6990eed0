"""Prints how klamm differs from a release of Apache Kafka: `python tools/kafka_diff.py VERSION`.

It reads the release's jars, which Maven fetches once, and needs Java. The exit code is 1 if there is a difference that
neither docs/deviations.md nor docs/apis.md explains. Facts that klamm has beyond the release are printed as "newer
than".

    --record    write names of metrics, rights and validators, which are compared with the next release
    --all       print explained differences, too
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from tests.peers.kafka_jars import newest  # noqa: E402
from tools.release.comparison import differences, explained, record  # noqa: E402
from tools.release.facts import read  # noqa: E402


def main(arguments: list[str] | None = None) -> int:
    """Print the differences, one a line. Return 1 if one of them is not explained."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="e.g. 4.4.0, or newest: the newest that Maven finds")
    parser.add_argument("--record", action="store_true", help="write what is compared with the next release")
    parser.add_argument("--all", action="store_true", help="print what is explained, too")
    options = parser.parse_args(arguments)
    version = newest() if options.version == "newest" else options.version
    facts = read(version)
    if options.record:
        record(facts, version)
    pages = ((ROOT / "docs" / name).read_text("utf-8") for name in ("deviations.md", "apis.md"))
    is_explained = explained(*pages)
    unexplained = 0
    for difference in differences(facts):
        if difference.is_newer:
            print(f"newer than {version}: {difference.text}")
        elif not is_explained(difference):
            unexplained += 1
            print(f"unexplained: {difference.text}")
        elif options.all:
            print(f"explained: {difference.text}")
    print(f"{unexplained} differences from {version} are not explained")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
