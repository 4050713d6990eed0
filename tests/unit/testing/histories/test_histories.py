"""The checker of histories names each planted fault, finds nothing in a correct broker, and refuses garbage."""

from __future__ import annotations

import io
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.cli.main import main
from klamm.runtime.clock import ManualClock
from klamm.testing.histories import HistoryError, Kind, Operation, Recorder, check_history, read_history, unseen
from klamm.testing.histories.registers import is_linearizable

from .model import FAULTS, Model


@pytest.mark.parametrize("seed", range(30))
def test_a_correct_broker_has_no_anomaly(seed: int) -> None:
    assert check_history(Model(seed).run(120)) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_within_twenty_histories(fault: str) -> None:
    for seed in range(20):
        found = [one for one in check_history(Model(seed, fault).run(120)) if one.name in FAULTS[fault]]
        if found:
            assert found[0].lines, "an anomaly names the lines that show it"
            return
    pytest.fail(f"nothing found of: {fault}")


def event(process: str, kind: str, function: str, value: Any = None, **more: Any) -> str:
    return json.dumps({"process": process, "type": kind, "f": function, "value": value, **more})


def both(process: str, function: str, value: Any, **more: Any) -> list[str]:
    return [event(process, "invoke", function, value, **more), event(process, "ok", function, value, **more)]


def names(lines: list[str], **options: bool) -> list[str]:
    return [anomaly.name for anomaly in check_history(read_history(lines), **options)]


def test_a_partly_committed_transaction_is_reported_as_torn() -> None:
    steps = [["send", "a", 1], ["send", "b", 2]]
    lines = [event("t", "invoke", "txn", steps), event("t", "info", "txn", steps)]
    lines += both("c", "poll", [["poll", {"a": [[0, 1]]}]])
    lines += both("r", "read_all", {"a": [[0, 1]], "b": []})
    assert names(lines) == ["torn_transaction"]


def test_a_read_that_began_before_a_commit_was_known_proves_nothing() -> None:
    steps = [["send", "a", 1], ["send", "b", 2]]
    lines = [
        event("t", "invoke", "txn", steps),
        event("r", "invoke", "read_all"),
        *both("c", "poll", [["poll", {"a": [[0, 1]]}]]),
        event("r", "ok", "read_all", {"b": []}),
        event("t", "info", "txn", steps),
    ]
    assert names(lines) == []


def test_uncommitted_records_may_be_read_without_isolation() -> None:
    aborted = [event("t", "invoke", "txn", [["send", "a", 1]]), event("t", "fail", "txn", [["send", "a", 1, 0]])]
    read = [["poll", {"a": [[0, 1]]}]]
    assert names(aborted + both("c", "poll", read, isolation="read_uncommitted")) == []
    assert names(aborted + both("c", "poll", read)) == ["aborted_read"]


def test_a_circle_of_reads_is_found_and_one_of_writes_if_asked() -> None:
    first, second = [["send", "a", 1, 0], ["poll", {"b": [[0, 2]]}]], [["send", "b", 2, 0], ["poll", {"a": [[0, 1]]}]]
    lines = [event("t", "invoke", "txn", first), event("u", "invoke", "txn", second)]
    lines += [event("t", "ok", "txn", first), event("u", "ok", "txn", second)]
    assert names(lines) == ["dependency_cycle"]
    first, second = [["send", "a", 1, 0], ["send", "b", 3, 1]], [["send", "a", 4, 1], ["send", "b", 2, 0]]
    lines = [event("t", "invoke", "txn", first), event("u", "invoke", "txn", second)]
    lines += [event("t", "ok", "txn", first), event("u", "ok", "txn", second)]
    assert names(lines) == []
    assert names(lines, write_cycles=True) == ["write_cycle"]


def test_producers_without_idempotence_may_write_twice() -> None:
    lines = both("p", "send", [["send", "a", 1, 0]]) + both("c", "poll", [["poll", {"a": [[0, 1], [1, 1]]}]])
    assert names(lines) == ["duplicate"]
    assert names(lines, at_least_once=True) == []


def test_values_that_no_client_polled_are_counted_but_are_no_anomaly() -> None:
    history = read_history(both("p", "send", [["send", "a", 1, 0]]))
    assert check_history(history) == []
    assert unseen(history) == {"a": 1}


def test_an_acquisition_after_a_possible_end_of_a_lock_is_no_anomaly() -> None:
    def acquired(member: str, count: int, at_ms: int) -> list[str]:
        value = {"group": "s", "member": member, "partition": "a", "records": [[0, 0, count]], "lock_ms": 100}
        return both(member, "acquired", value, time_ns=at_ms * 1_000_000)

    assert names(acquired("m", 1, 0) + acquired("n", 2, 99)) == ["double_acquisition"]
    assert names(acquired("m", 1, 0) + acquired("n", 2, 100)) == []


def test_deliveries_to_a_member_that_leaves_are_not_counted() -> None:
    def acquired(member: str) -> list[str]:
        return both(member, "acquired", {"group": "s", "member": member, "partition": "a", "records": [[0, 0, 1]]})

    left = both("m", "left", {"group": "s", "member": "m"})
    assert names(acquired("m") + left + acquired("n")) == []
    assert names(acquired("m") + acquired("n")) == ["delivery_count", "double_acquisition"]


def test_the_count_is_unknown_after_an_unanswered_acknowledgement_at_the_end_of_a_session() -> None:
    value = {"group": "s", "member": "m", "partition": "a", "records": [[0, 0, 1]]}
    lines = both("m", "acquired", value)
    lines += both("m", "acknowledged", value | {"records": [[0, 0, "release"]]})[:1]
    lines += both("m-session", "left", {"group": "s", "member": "m"})
    assert names(lines + both("n", "acquired", value | {"member": "n"})) == []


def test_records_that_a_drained_share_group_never_delivered_are_lost() -> None:
    lines = both("p", "send", [["send", "a", 1, 0]])
    lines += both("d", "drained", {"group": "s", "partition": "a", "from_offset": 0})
    assert names(lines) == ["lost_delivery"]


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            [("set", 1), ("set", 2), ("get", 1), ("get", 2), ("get", None), ("create", True), ("delete", True)]
        ),
        st.integers(0, 12),
        st.integers(1, 6),
        st.sampled_from([Kind.OK, Kind.OK, Kind.INFO]),
    ),
    max_size=5,
)


def fits(order: tuple[Operation, ...]) -> bool:
    """Return True if the operations have their results in this order."""
    state: object = None
    for one in order:
        value = one.value["value"]
        if one.function == "get":
            if value != state:
                return False
        elif one.function == "set":
            state = value
        elif one.function == "create":
            if one.outcome is Kind.OK and state is not None:
                return False
            state = True if state is None else state
        else:
            if one.outcome is Kind.OK and state is None:
                return False
            state = None
    return True


@given(OPERATIONS)
def test_the_search_for_an_order_agrees_with_trying_all_orders(
    drawn: list[tuple[tuple[str, Any], int, int, Kind]],
) -> None:
    operations = [
        Operation(
            "p", function, kind, began, 99 if kind is Kind.INFO else began + lasts, {"value": value}, None, None, "", ()
        )
        for (function, value), began, lasts, kind in drawn
        if function != "get" or kind is Kind.OK
    ]
    certain = [one for one in operations if one.outcome is Kind.OK]
    unknown = [one for one in operations if one.outcome is not Kind.OK]
    expected = any(
        fits(order)
        for size in range(len(unknown) + 1)
        for some in itertools.combinations(unknown, size)
        for order in itertools.permutations([*certain, *some])
        if all(not later.ended < earlier.began for earlier, later in itertools.combinations(order, 2))
    )
    assert is_linearizable(operations) is expected


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("7", "an event is a JSON object"),
        ("{}", "no process, type, f"),
        (event("p", "invok", "send"), 'did you mean "invoke"'),
        (event("p", "invoke", "pol"), 'did you mean "poll"'),
        (event("p", "ok", "send", []), "process p has not invoked send"),
        (event("p", "invoke", "send", []) + "\n" + event("p", "invoke", "send", []), "has not ended send"),
        (event("p", "invoke", "send", [["send", 1, 2]]), "the value of send is a list of"),
        (event("p", "invoke", "send", [["send", "a", 1, -1]]), "the value of send is a list of"),
        (event("p", "invoke", "owned", {"group": "g"}), "the value of owned is"),
        (event("p", "invoke", "acquired", {"group": "g"}), "the value of acquired is"),
        (event("p", "invoke", "send", [], time_ns="now"), "time_ns is an integer"),
        (event("p", "invoke", "poll", [], isolation="none"), "isolation is read_committed or read_uncommitted"),
    ],
)
def test_an_invalid_history_is_refused_with_its_line(line: str, problem: str) -> None:
    with pytest.raises(HistoryError, match="line [12]: ") as refused:
        read_history(line.split("\n"))
    assert problem in str(refused.value)


def test_a_recorded_history_is_read_back() -> None:
    file = io.StringIO()
    record = Recorder(file, ManualClock())
    with record.operation("p", "send", [["send", "a", 1]]) as call:
        call.ok([["send", "a", 1, 0]])
    with pytest.raises(OSError, match="cut"), record.operation("p", "send", [["send", "a", 2]]):
        raise OSError("cut")
    with record.operation("p", "send", [["send", "a", 3]]) as call:
        call.fail()
    with pytest.raises(ValueError, match="no function"), record.operation("p", "sent"):
        pass
    history = read_history(file.getvalue().splitlines())
    assert [one.outcome for one in history.operations] == [Kind.OK, Kind.INFO, Kind.FAIL]
    assert [one.value[0][2] for one in history.operations] == [1, 2, 3]


def test_the_command_ends_with_one_and_shows_the_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "history.jsonl"
    lost = both("p", "send", [["send", "a", 1, 0]]) + both("r", "read_all", {"a": []})
    file.write_text("\n".join(lost))
    assert main(["verify-history", str(file)]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("lost_write: 1 was acknowledged in a")
    assert shown[-1] == "2 operations, 1 anomalies"
    assert f"  2: {lost[1]}" in shown
    assert main(["verify-history", "--json", str(file)]) == 1
    assert json.loads(capsys.readouterr().out)["offsets"] == {"a": 0}
    file.write_text("\n".join(lost[:2]))
    assert main(["verify-history", str(file)]) == 0
    assert capsys.readouterr().out == "1 operations, 0 anomalies; 1 acknowledged values that no client polled\n"


@pytest.mark.parametrize("content", [b"{}\n", b"\xff\n", None])
def test_the_command_ends_with_two_if_it_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    file = tmp_path / "history.jsonl"
    if content is not None:
        file.write_bytes(content)
    assert main(["verify-history", str(file)]) == 2
    assert str(file) in capsys.readouterr().err
