"""The cost of acknowledging one record among many: `python -m bench.share_runs [--runs 100 10000 100000]`.

A member of a share group holds every other record of a partition, and the records between are done, so each record is a
run of its own. The member accepts or releases records one by one, at random, and each change is committed to the store.
The table has the median and the longest time of one acknowledgement: in memory, the commit, and both. The last column
is the time in which a start loads the runs.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

from klamm_broker.share import persistence
from klamm_broker.share.partition import Acknowledgement, FetchedBatch, Limits, SharePartition
from klamm_broker.share.persistence import SharePartitionKey
from klamm_broker.share.record_state import ACKNOWLEDGED, AcknowledgeType
from klamm_broker.share.state_changes import StateBatch
from klamm_broker.storage.store import Store

KEY: Final = SharePartitionKey("group", bytes(16), 0)
_KINDS: Final = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE)


def in_flight(runs: int) -> tuple[SharePartition, Limits]:
    """Return a partition with `runs` runs. The member holds every other one."""
    limits = Limits(delivery_count=5, record_locks=runs)
    partition = SharePartition(0, [StateBatch(at, at, ACKNOWLEDGED, 1) for at in range(1, runs, 2)])
    partition.acquire(
        "member", 0, [FetchedBatch(0, runs - 1)], max_records=runs, is_strict=False, deadline_ns=1, limits=limits
    )
    return partition, limits


def measured(runs: int, count: int, store: Store) -> str:
    """Return a row of the table."""
    partition, limits = in_flight(runs)
    update = partition.begin_write()
    store.write_and_wait(persistence.put(KEY, update))
    partition.written(update.number)
    # The first call looks at each available run once. Make it now, not within the first measured acknowledgement.
    partition.next_fetch_offset()
    in_memory, commits, whole = list[float](), list[float](), list[float]()
    for offset in random.Random(runs).sample(range(0, runs, 2), min(count, runs // 2)):
        began = time.perf_counter()
        partition.acknowledge("member", [Acknowledgement(offset, offset, [random.choice(_KINDS)])], 2, limits)
        update = partition.begin_write()
        statements = persistence.put(KEY, update)
        submitted = time.perf_counter()
        store.submit(statements)
        store.commit_pending()
        committed = time.perf_counter()
        partition.written(update.number)
        partition.next_deadline_ns()
        partition.next_fetch_offset()
        ended = time.perf_counter()
        commits.append(committed - submitted)
        whole.append(ended - began)
        in_memory.append(ended - began - commits[-1])
    began = time.perf_counter()
    for saved in persistence.load(store):
        SharePartition(saved.start_offset, saved.batches, is_stored=True)
    load_ms = (time.perf_counter() - began) * 1000
    cells = [f"{median(each) * 1000:.2f} ({max(each) * 1000:.2f})" for each in (in_memory, commits, whole)]
    return f"| {runs:,} | {' | '.join(cells)} | {load_ms:.0f} |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.share_runs", description="One record among many runs")
    parser.add_argument("--runs", type=int, nargs="+", default=[100, 1000, 10_000, 100_000])
    parser.add_argument("--acknowledgements", type=int, default=500)
    chosen = parser.parse_args(arguments)
    print("| Runs | In memory, ms | Commit, ms | Both, ms | Load, ms |\n| --: | --: | --: | --: | --: |")
    for runs in chosen.runs:
        with tempfile.TemporaryDirectory(prefix="klamm-bench-") as name:
            store = Store(Path(name) / "klamm.db", sync_submitted=False)
            store.open()
            group = "INSERT INTO share_groups (group_id, epoch, assignment_epoch, metadata_hash) VALUES (?, 0, 0, '')"
            store.write_and_wait([(group, (KEY.group_id,))])
            print(measured(runs, chosen.acknowledgements, store))
            store.close()


if __name__ == "__main__":
    main()
