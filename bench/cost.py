"""The cost of the most expensive frames: `python -m bench.cost [--guarded] [--large]` prints a table of all APIs.

Measures the first and the last version of each API with the worst frame that a network thread runs itself, or with
`--large` the worst frame within the default limits, which the handlers run. Prints processor milliseconds, and the peak
of memory without the frame. The measuring code is in `tests/faults/cost_meter.py`.
"""

from __future__ import annotations

import argparse
import gc
import logging

from klamm.testing import EmbeddedServer
from klamm.wire.api_keys import spec_of
from tests.faults.cost_meter import DEFAULT_LIMITS, Cost, CostMeter
from tests.faults.costly_frames import CostlyFrame, costly_frames

INLINE = (64 * 1024, 95)
LARGE_BYTES = 4 * 1024 * 1024


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--guarded", action="store_true", help="with an authorizer and a user who may do nothing")
    parser.add_argument("--large", action="store_true", help="what the handlers run; takes minutes")
    parser.add_argument("--topics", type=int, default=100, help="topics of five partitions")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    settings = ["listeners.default.gates=[]"]
    if arguments.guarded:
        settings.append('listeners.default.authorizer="acl"')
    print("| API | version | worst frame | bytes | network thread, ms | handler, ms | KiB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with EmbeddedServer(settings) as server:
        meter = CostMeter(server, arguments.topics)
        gc.collect()
        gc.freeze()
        for api_key, versions in meter.served:
            name = spec_of(api_key).name
            limits = (LARGE_BYTES, DEFAULT_LIMITS.max_elements[api_key]) if arguments.large else INLINE
            for version in sorted({versions[0], versions[-1]}):
                made, cost = worst(meter, name, version, *limits)
                kibibytes = meter.peak_bytes(made.frame) / 1024
                print(
                    f"| {name} | {version} | {made.kind} | {len(made.frame)} | {cost.inline_ms:.1f} |"
                    f" {cost.handler_ms:.1f} | {kibibytes:.0f} |",
                    flush=True,
                )


def worst(meter: CostMeter, api: str, version: int, max_bytes: int, max_elements: int) -> tuple[CostlyFrame, Cost]:
    """Return the frame that takes the most time on both threads together."""
    found = []
    for made in costly_frames(api, version, max_bytes, max_elements):
        cost = meter.run(made.frame)
        found.append((cost.inline_ms + cost.handler_ms, made, cost))
    _, made, cost = max(found, key=lambda one: one[0])
    return made, cost


if __name__ == "__main__":
    main()
