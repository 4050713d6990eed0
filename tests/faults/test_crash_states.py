"""Crash states: the broker is stopped before and within every operation of a workload, and must keep its promises.

CI checks a part of the states, drawn by a seed (`--hypothesis-seed` draws others). `-m slow` checks all.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from klamm.runtime import Scheduler, Workers
from klamm_broker.log.flusher import LogFlusher
from klamm_broker.log.serial_worker import SerialWorker
from tests.contract.filter_settings import registered
from tests.faults.crash_states.coordinated import run_coordinated
from tests.faults.crash_states.crashed_disk import CrashedState, Disk, StoreFiles, Tree, all_of, none_of, walk
from tests.faults.crash_states.promises import (
    OFFSETS,
    ROWS_OF_COORDINATORS,
    ROWS_OF_RECORDS,
    ROWS_OF_SHARE_GROUPS,
    SHARED,
    SYNCED_OFFSETS,
    SYNCED_SHARED,
    Promises,
)
from tests.faults.crash_states.recorded_disk import Fault, Operation, RecordedDisk, Recording, Write
from tests.faults.crash_states.shared import run_shared
from tests.faults.crash_states.workload import ERRORS, QuietHarness, Workload, recorded, run

pytestmark = [pytest.mark.faults, pytest.mark.timeout(3600)]

SYNCED: dict[str, Any] = {"offsets_commit_fsync": True}
PARTS = 8
"""Number of parts of the whole suite, so that it can be continued after a failure (`--lf`)."""
SHARE_OF_CRASHED_RECOVERIES = 0.1
PLACES_IN_CI = 40
FILTERED_PLACES_IN_CI = 8
FILTERED_PLACES = 400
FAULTS_IN_CI = 8
"""Number of places in each test. The tests together take about 20 s."""


class Case(NamedTuple):
    """A workload with the settings of its broker, and the promises that are checked."""

    name: str
    run: Callable[[Workload], None]
    settings: dict[str, Any]
    rows: tuple[str, ...]
    filters: tuple[str, ...] = ()

    def recorded(self, directory: Path, fault: Fault | None = None) -> Workload:
        """Run the workload on a directory that does not exist yet."""
        return recorded(directory, self.settings, fault, self.run, self.filters)


COORDINATED = Case("coordinators", run_coordinated, {}, ROWS_OF_COORDINATORS)
SHARES = Case("share groups", run_shared, {}, ROWS_OF_SHARE_GROUPS)
CASES = [
    Case("records", run, {}, ROWS_OF_RECORDS),
    Case("records, offsets synced", run, SYNCED, ROWS_OF_RECORDS),
    COORDINATED,
    SHARES,
    Case("share groups, synced", run_shared, SYNCED, ROWS_OF_SHARE_GROUPS),
]
RENAMING = ("topic_prefix",)
"""Filters that give the broker other names than the workload uses, and keep no state."""
FILTERS = tuple(name for name in registered() if name not in RENAMING)
FILTERED = [
    Case("records, filters", run, {}, ROWS_OF_RECORDS, FILTERS),
    Case("coordinators, filters", run_coordinated, {}, ROWS_OF_COORDINATORS, FILTERS),
    Case("share groups, filters", run_shared, {}, ROWS_OF_SHARE_GROUPS, FILTERS),
]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.fixture(autouse=True)
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no threads. The workload calls the functions that they would run."""
    monkeypatch.setattr(LogFlusher, "start", lambda _self, _threads=None: None)
    monkeypatch.setattr(Scheduler, "start", lambda _self, _name="": None)
    monkeypatch.setattr(SerialWorker, "submit", lambda _self, work: work())
    monkeypatch.setattr(Workers, "submit", lambda _self, work, _source="": work())


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """Return a directory, in memory if the system has one, because thousands of states are written."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="klamm-crash-", dir=memory) as name:
        yield Path(name)


class State(NamedTuple):
    """A state that a crash may leave, made when it is needed."""

    name: str
    power_cut: bool
    make: Callable[[], CrashedState]


class Checker:
    """The check of a workload's states against the promises."""

    def __init__(self, directory: Path, work: Workload) -> None:
        self._directory = directory / "crashed"
        self._scratch = directory
        self._work = work
        self._store_files = StoreFiles(directory, work.recording.operations)
        self._seen: set[int] = set()
        self.checked = 0
        self.repeated = 0
        self.held: Counter[str] = Counter()

    def check(self, state: State, index: int) -> None:
        self._make(state.make())
        self._hold(index, state.name, power_cut=state.power_cut)

    def check_once(self, state: State, index: int) -> bool:
        """Check a state, unless an equal state with the same promises has been checked. Return True if it was checked
        now.
        """
        made = state.make()
        promises = sum(event.started_at <= index for event in self._work.events)
        promises += sum((event.acknowledged_at or index + 1) <= index for event in self._work.events)
        key = hash((freeze(made.tree), made.commits, state.power_cut, promises))
        if key in self._seen:
            self.repeated += 1
            return False
        self._seen.add(key)
        self._make(made)
        self._hold(index, state.name, power_cut=state.power_cut)
        return True

    def check_crash_of_recovery(self, state: State, index: int, chance: random.Random) -> None:
        """Open the state, crash again during the recovery, and open the state that this leaves."""
        self._make(state.make())
        base = (self._directory / "klamm.db").read_bytes()
        recording = Recording(self._directory)
        recording.adopt()
        started_at = len(recording)
        boot = "second boot" if state.power_cut else "first boot"
        harness = QuietHarness(self._directory, RecordedDisk(recording), recording, boot, self._work.harness.filters)
        harness.open(**self._work.settings)
        harness.settle()
        harness.broker.close()
        operations = recording.operations
        store_files = StoreFiles(self._scratch, operations, base)
        stop = chance.randint(started_at, len(operations))
        disk = Disk()
        for operation in operations[:stop]:
            disk.do(operation)
        again = disk.without_power_at_random(chance)
        again.write_to(self._directory)
        (self._directory / "klamm.db").write_bytes(store_files.content(again.commits))
        self._hold(
            index, f"{state.name}, and again without power before its operation {stop - started_at}", power_cut=True
        )

    def _make(self, state: CrashedState) -> None:
        state.write_to(self._directory)
        (self._directory / "klamm.db").write_bytes(self._store_files.content(state.commits))

    def _hold(self, index: int, name: str, *, power_cut: bool) -> None:
        operations = self._work.recording.operations
        operation = operations[index] if index < len(operations) else "the end"
        promises = Promises(self._work, index, power_cut=power_cut)
        try:
            promises.check(self._directory)
        except Exception as error:
            raise AssertionError(f"{name}, before operation {index}, {str(operation)[:200]}: {error!r}") from error
        self.checked += 1
        self.held += promises.held


def freeze(tree: Tree) -> frozenset[tuple[str, object]]:
    """Return a hashable value that is equal for equal trees."""
    return frozenset((name, each if isinstance(each, bytes) else freeze(each)) for name, each in tree.items())


def killed_states(disk: Disk, operation: Operation | None) -> Iterator[State]:
    yield State("killed", False, disk.killed)
    if isinstance(operation, Write):
        for size_bytes in range(1, len(operation.data)):
            yield State(
                f"killed {size_bytes} bytes into a write", False, partial(disk.killed_within, operation, size_bytes)
            )


def power_cut_states(disk: Disk, chance: random.Random, draws: int) -> Iterator[State]:
    for entries, contents in itertools.product((none_of, all_of), repeat=2):
        name = f"without power, entries {entries.__name__}, contents {contents.__name__}"
        yield State(name, True, partial(disk.without_power, entries, contents))
    zeroed = partial(disk.without_power, all_of, none_of, zeroed=True)
    yield State("without power, entries all_of, contents zeroed", True, zeroed)
    for number in range(draws):
        yield State(f"without power, draw {number}", True, partial(disk.without_power_at_random, chance))


@each_case
def test_broker_recovers_from_sampled_crash_states(scratch: Path, case: Case, seed: int) -> None:
    held = check_places(scratch, case, seed, PLACES_IN_CI)
    others = {OFFSETS, SHARED} if case.settings else {SYNCED_OFFSETS, SYNCED_SHARED}
    assert held >= {*case.rows} - others, "a promise that nothing was checked of"


@pytest.mark.parametrize("case", FILTERED, ids=lambda case: case.name)
@pytest.mark.parametrize("count", [FILTERED_PLACES_IN_CI, pytest.param(FILTERED_PLACES, marks=pytest.mark.slow)])
def test_broker_behind_filters_recovers_from_sampled_crash_states(
    scratch: Path, case: Case, count: int, seed: int
) -> None:
    """Check that clients of the listener get through its filters what the promises say."""
    assert check_places(scratch, case, seed, count)


def check_places(scratch: Path, case: Case, seed: int, count: int) -> set[str]:
    """Check states at this number of places. Return the promises for which items were checked."""
    work = case.recorded(scratch / "data")
    chance = random.Random(seed)
    checker = Checker(scratch, work)
    count = min(count, len(work.recording) + 1)
    places = set(chance.sample(range(len(work.recording) + 1), count))
    for index, disk, operation in walk(work.recording.operations):
        if index in places:
            killed = chance.choice(list(killed_states(disk, operation)))
            for state in (killed, *chance.sample(list(power_cut_states(disk, chance, 3)), 2)):
                checker.check(state, index)
    assert checker.checked == 3 * count
    return {row for row, number in checker.held.items() if number}


@each_case
def test_broker_recovers_from_crashes_during_recovery(scratch: Path, case: Case, seed: int) -> None:
    work = case.recorded(scratch / "data")
    chance = random.Random(seed)
    checker = Checker(scratch, work)
    places = set(chance.sample(range(len(work.recording) + 1), PLACES_IN_CI // 5))
    for index, disk, operation in walk(work.recording.operations):
        if index in places:
            killed = chance.choice(list(killed_states(disk, operation)))
            for state in (killed, next(power_cut_states(disk, chance, 1))):
                checker.check_crash_of_recovery(state, index, chance)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@each_case
def test_broker_recovers_from_all_crash_states(scratch: Path, case: Case, part: int, seed: int) -> None:
    work = case.recorded(scratch / "data")
    chance = random.Random(f"{part} {seed}")
    checker = Checker(scratch, work)
    places = len(work.recording) + 1
    wanted = range(places * part // PARTS, places * (part + 1) // PARTS)
    for index, disk, operation in walk(work.recording.operations):
        if index not in wanted:
            continue
        # The settings differ only in the synced data, which does not matter after a kill.
        killed = killed_states(disk, operation) if case.settings is not SYNCED else ()
        for state in itertools.chain(killed, power_cut_states(disk, chance, 8)):
            if checker.check_once(state, index) and chance.random() < SHARE_OF_CRASHED_RECOVERIES:
                checker.check_crash_of_recovery(state, index, chance)
    print(f"{case.name}, operations {wanted}: {checker.checked} states, and {checker.repeated} that equal one of them")
    print(f"  checked: {dict(checker.held)}")


def check_fault(directory: Path, case: Case, fault: Fault, seed: int) -> None:
    """Run the workload with a fault. Crash at its end, and at a random place."""
    chance = random.Random(f"{fault} {seed}")
    name = f"{fault.calls} calls from {fault.first_call} on fail with {fault.error}"
    try:
        work = case.recorded(directory / "data", fault)
    except Exception as error:
        raise AssertionError(f"{name}: {error!r}") from error
    checker = Checker(directory, work)
    places = {len(work.recording), chance.randint(0, len(work.recording))}
    for index, disk, _operation in walk(work.recording.operations):
        if index in places:
            checker.check(State(f"{name}; killed", False, disk.killed), index)
            for _ in range(0 if disk.has_lied else 2):
                cut = partial(disk.without_power_at_random, chance)
                checker.check(State(f"{name}; without power", True, cut), index)


def count_calls(directory: Path, case: Case) -> int:
    return case.recorded(directory / "counted").recording.calls


each_faulty_case = pytest.mark.parametrize("case", [CASES[0], COORDINATED, SHARES], ids=lambda case: case.name)


@each_faulty_case
@pytest.mark.parametrize("error", ERRORS, ids=["ENOSPC", "EIO"])
def test_broker_recovers_from_failing_disks(scratch: Path, case: Case, error: int, seed: int) -> None:
    chance = random.Random(seed)
    calls = count_calls(scratch, case)
    for number in range(FAULTS_IN_CI):
        fault = Fault(chance.randrange(calls), chance.choice([1, 1, 3, 30]), error)
        check_fault(scratch / str(number), case, fault, seed)


@pytest.mark.slow
@each_faulty_case
@pytest.mark.parametrize("failing_calls", [1, 5, 100])
@pytest.mark.parametrize("error", ERRORS, ids=["ENOSPC", "EIO"])
def test_a_disk_that_fails_at_any_call(scratch: Path, case: Case, error: int, failing_calls: int, seed: int) -> None:
    for first_call in range(count_calls(scratch, case)):
        directory = scratch / str(first_call)
        check_fault(directory, case, Fault(first_call, failing_calls, error), seed)
        shutil.rmtree(directory)
