"""Stages an overload for operators who do not know which it is: `python -m tools.overloads NUMBER --seed SEED`.

The seed draws the order of the overloads and the names of the clients, so the same number and seed stage the same one.
The server has its extensions `prometheus` and `console`, whose addresses are printed. At the end, the program says what
it was.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import random
import secrets
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
NAMES: Final = ("a-team", "billing", "etl", "mirror", "orders", "reports", "stock", "web-7")


def main(arguments: Sequence[str] | None = None, ended: Event | None = None) -> int:
    """Stage an overload until the time is up, or until an interrupt. `ended` is for tests: the overload ends when it is
    set.
    """
    parser = argparse.ArgumentParser(prog="python -m tools.overloads", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("number", type=int, metavar="NUMBER", help="1 for the first overload of the order, and so on")
    parser.add_argument(
        "--seed", help="draws the order and the names of clients; default: a random one, which is printed"
    )
    parser.add_argument("--seconds", type=float, default=600.0, help="end after this time; default: 600")
    options = parser.parse_args(arguments)
    # The overloads are those of the tests, which are not typed.
    staged: Any = importlib.import_module("tests.overloads")
    seed = options.seed or secrets.token_hex(4)
    draw = random.Random(seed)
    order = draw.sample(sorted(staged.OVERLOADS), len(staged.OVERLOADS))
    if not 1 <= options.number <= len(order):
        parser.error(f"NUMBER must be 1 to {len(order)}")
    # Not the same name of the client that causes it in each overload of an order.
    free = random.Random(f"{seed} {options.number}").sample(NAMES, len(NAMES))
    names: dict[str, str] = {}
    staging = staged.Staging("prometheus", "console", name=lambda role: names.setdefault(role, free[len(names)]))
    which = order[options.number - 1]
    overload = staged.OVERLOADS[which]
    ended = ended or _interrupted()
    # The log would give hints beside the answers that are drilled.
    logging.disable()
    try:
        with overload.staged(staging) as server:
            print(f"seed        {seed}\nlistener    {'{}:{}'.format(*server.address())}")
            for plan, extension in zip(server.server.plan.extensions, server.server.extensions, strict=True):
                print(f"{plan.name:12}{extension.describe()}")
            print(f"it lasts for {options.seconds:.0f} s; an interrupt (Ctrl-C) ends it", flush=True)
            ended.wait(options.seconds)
    finally:
        logging.disable(logging.NOTSET)
    print(f"it was {which}: {overload.stage}; {'; '.join(one.format_map(staging) for one in overload.look_at)}")
    return 0


def _interrupted() -> Event:
    """Return an event that SIGINT or SIGTERM sets."""
    ended = Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: ended.set())
    return ended


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
