"""Tests of assigners and request schedulers: assigned and moved connections, and the order of requests."""

import itertools
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm import Address, ConnectionContext, ListenerContext, RequestContext
from klamm.dispatch import ConnectionLoad, Move, ProcessorLoad
from klamm.wire.api_keys import ApiKey
from klamm_dispatch.assigners import RoundRobin
from klamm_dispatch.fair import Fair, FairSettings
from klamm_dispatch.least_loaded import LeastLoaded, LeastLoadedSettings
from klamm_dispatch.priority import Priority, PrioritySettings
from klamm_dispatch.schedulers import Fifo

HERE = Address("127.0.0.1", 1)


def loads(*connections):
    return [ProcessorLoad(count) for count in connections]


def request(api_key=ApiKey.PRODUCE, client_id="c", listener="default", size_bytes=100):
    context = ListenerContext(listener, HERE, HERE)
    connection = ConnectionContext(client_id, context, HERE, HERE)
    return RequestContext(connection, None, int(api_key), 0, 0, client_id, size_bytes)


def order(queue, requests):
    """Return client ids in the order in which one handler takes the queued requests."""
    for one in requests:
        assert queue.offer(one)
    taken = []
    for _ in requests:
        one = queue.take()
        taken.append(one.client_id)
        queue.handled(one, 1000)
    return taken


# ---- assigners


def test_processors_take_turns_even_when_their_number_changes():
    assigner = RoundRobin()
    assert [assigner.assign(HERE, loads(0, 0, 0)) for _ in range(4)] == [0, 1, 2, 0]
    assert [assigner.assign(HERE, loads(0, 0)) for _ in range(3)] == [1, 0, 1]
    assert [assigner.assign(HERE, loads(0)) for _ in range(2)] == [0, 0]


def test_least_loaded_fills_the_emptiest_and_takes_turns_among_equals():
    assigner = LeastLoaded()
    assert assigner.assign(HERE, loads(3, 1, 2)) == 1
    assert {assigner.assign(HERE, loads(0, 0, 0)) for _ in range(3)} == {0, 1, 2}
    counts = [0, 0, 0]
    for _ in range(30):
        counts[assigner.assign(HERE, loads(*counts))] += 1
    assert counts == [10, 10, 10]


def test_least_loaded_also_considers_busy_time_and_bytes():
    assigner = LeastLoaded()
    assert assigner.assign(HERE, [ProcessorLoad(4, 1e6, 0.9), ProcessorLoad(5, 1e3, 0.1)]) == 1
    assert assigner.assign(HERE, [ProcessorLoad(4, 1e3, 0.1), ProcessorLoad(4, 9e6, 0.1)]) == 0


def test_a_busy_processor_gives_away_the_connection_that_balances_the_load():
    assigner = LeastLoaded(LeastLoadedSettings(goal="throughput"))
    hot = [ConnectionLoad(f"heavy-{n}", 1e6, 0.24) for n in range(4)] + [ConnectionLoad("light", 1.0, 0.001)]
    moves = assigner.rebalance([ProcessorLoad(5, 4e6, 0.96), ProcessorLoad(1, 0, 0.02)], [hot, []])
    assert len(moves) == 1
    assert moves[0].connection_id.startswith("heavy-")
    assert moves[0].processor == 1


@pytest.mark.parametrize("goal", ["latency", "throughput"])
def test_light_connections_leave_one_that_keeps_a_processor_busy_alone(goal):
    assigner = LeastLoaded(LeastLoadedSettings(max_moves=2, goal=goal))
    hot = [ConnectionLoad("heavy", 1e6, 0.95), *(ConnectionLoad(f"light-{n}", 1.0, 0.001) for n in range(5))]
    moves = assigner.rebalance([ProcessorLoad(6, 1e6, 1.0), ProcessorLoad(0, 0, 0.0)], [hot, []])
    assert moves == [Move("light-0", 1), Move("light-1", 1)]


@pytest.mark.parametrize(
    ("busy", "why"), [((0.4, 0.0), "no processor is hot"), ((0.9, 0.8), "no skew"), ((0.0, 0.0), "nothing to do")]
)
def test_no_connection_moves_without_need(busy, why):
    connections = [[ConnectionLoad(f"{p}-{n}", 1.0, share / 4) for n in range(4)] for p, share in enumerate(busy)]
    assert not LeastLoaded().rebalance([ProcessorLoad(4, 4.0, share) for share in busy], connections), why


def test_for_latency_light_connections_leave_and_heavy_ones_stay_away_from_them():
    assigner = LeastLoaded()
    heavy = [ConnectionLoad(f"heavy-{n}", 1e6, 0.24) for n in range(4)]
    light = [ConnectionLoad("light", 1.0, 0.001)]
    busy = [ProcessorLoad(5, 4e6, 0.96), ProcessorLoad(1, 0, 0.02), ProcessorLoad(1, 0, 0.05)]
    assert assigner.rebalance(busy, [[*heavy, *light], [], []]) == [Move("light", 1)]
    (move,) = assigner.rebalance(busy, [heavy, light, []])
    assert move.processor == 2


@given(
    st.lists(st.lists(st.floats(0.0, 0.3) | st.floats(0.0, 0.02), max_size=12), min_size=2, max_size=4),
    st.sampled_from(["latency", "throughput"]),
)
def test_connections_stop_moving_after_some_time(shares, goal):
    """With any loads, a state is reached in which no connection moves. So connections do not migrate for ever."""
    assigner = LeastLoaded(LeastLoadedSettings(goal=goal))
    names = itertools.count()
    placed = [[ConnectionLoad(str(next(names)), 0.0, share) for share in own] for own in shares]
    for _ in range(200):
        busy = [ProcessorLoad(len(own), 0.0, sum(one.busy for one in own)) for own in placed]
        moves = assigner.rebalance(busy, placed)
        if not moves:
            return
        for move in moves:
            (one,) = [one for own in placed for one in own if one.connection_id == move.connection_id]
            placed = [[other for other in own if other is not one] for own in placed]
            placed[move.processor].append(one)
    pytest.fail("connections still move")


# ---- schedulers


@pytest.fixture(params=["fifo", "priority", "fair"])
def queue_of(request):
    kinds = {
        "fifo": lambda capacity: Fifo(None, capacity),
        "priority": lambda capacity: Priority(PrioritySettings(data_max_queued=1.0), capacity),
        "fair": lambda capacity: Fair(FairSettings(client_max_queued=1.0), capacity),
    }
    return kinds[request.param]


def test_requests_of_one_client_are_taken_in_order_and_up_to_the_capacity(queue_of):
    queue = queue_of(2)
    first, second, third = request(), request(), request()
    assert [queue.offer(first), queue.offer(second), queue.offer(third)] == [True, True, False]
    assert queue.size() == 2
    assert [queue.take(), queue.take()] == [first, second]
    assert queue.offer(third)
    assert queue.take() is third
    assert queue.size() == 0


def test_wake_ends_one_take_each(queue_of):
    queue = queue_of(5)
    taken = []
    threads = [threading.Thread(target=lambda: taken.append(queue.take())) for _ in range(3)]
    for thread in threads:
        thread.start()
    queue.wake()
    queue.wake()
    one = request()
    queue.offer(one)
    for thread in threads:
        thread.join(60)
    assert sorted(taken, key=str) == [one, None, None]


def test_every_request_is_taken_once_by_many_handlers(queue_of):
    queue = queue_of(10_000)
    queue.resized(4)
    taken = []

    def handle():
        while (one := queue.take()) is not None:
            taken.append(one)
            queue.handled(one, 10)

    handlers = [threading.Thread(target=handle) for _ in range(4)]
    for handler in handlers:
        handler.start()
    sent = [request(ApiKey(n % 4), f"client-{n % 7}") for n in range(2000)]
    assert all(map(queue.offer, sent))
    while queue.size():
        threading.Event().wait(0.001)
    for _ in handlers:
        queue.wake()
    for handler in handlers:
        handler.join(60)
    assert len(taken) == len(sent)
    assert set(taken) == set(sent)


def test_control_requests_go_first_and_data_requests_get_their_share():
    queue = Priority(PrioritySettings(data_share=0.25), 100)
    data = [request(ApiKey.PRODUCE, "data") for _ in range(5)]
    control = [request(ApiKey.HEARTBEAT, "control") for _ in range(12)]
    taken = order(queue, [*data, *control])
    assert taken[:15] == ["control", "control", "control", "data"] * 3 + ["control"] * 3
    assert taken[15:] == ["data", "data"]


@pytest.mark.parametrize(
    "key",
    [key for key in ApiKey if key.name.endswith("_HEARTBEAT") and "BROKER" not in key.name],
    ids=lambda key: key.name,
)
def test_heartbeats_of_all_kinds_of_groups_are_control_requests(key):
    assert Priority(PrioritySettings(), 100).lane(request(key)) == "control"


def test_with_a_share_of_0_data_requests_may_starve():
    queue = Priority(PrioritySettings(data_share=0.0), 100)
    taken = order(queue, [request(ApiKey.FETCH, "data"), *(request(ApiKey.METADATA, "control") for _ in range(20))])
    assert taken[-1] == "data"


def test_all_requests_of_a_pinned_listener_are_control():
    queue = Priority(PrioritySettings(control_listeners=("internal",)), 100)
    pinned = request(ApiKey.PRODUCE, "pinned", listener="internal")
    assert order(queue, [request(), pinned]) == ["pinned", "c"]
    assert (queue.lane(pinned), queue.lane(request())) == ("control", "data")


def test_the_listeners_of_all_nodes_are_pinned():
    queue = Priority(PrioritySettings(control_listeners=("internal",)), 100)
    pinned = request(ApiKey.PRODUCE, "pinned", listener="internal-2")
    pinned.connection.listener.configured_as = "internal"
    assert order(queue, [request(), pinned]) == ["pinned", "c"]


def test_a_full_data_lane_leaves_room_for_control():
    queue = Priority(PrioritySettings(data_max_queued=0.5), 10)
    assert [queue.offer(request()) for _ in range(6)] == [True] * 5 + [False]
    assert [queue.offer(request(ApiKey.HEARTBEAT)) for _ in range(6)] == [True] * 5 + [False]
    assert queue.lane_sizes() == {"control": 5, "data": 5}


def take_in_background(queue):
    """Start a handler that takes one request. Return its thread, and the list that will have the request."""
    taken = []
    thread = threading.Thread(target=lambda: taken.append(queue.take()))
    thread.start()
    return thread, taken


@pytest.mark.parametrize(
    ("queue", "other"),
    [
        (Priority(PrioritySettings(), 100), request(ApiKey.HEARTBEAT, "other")),
        (Fair(FairSettings(), 100), request(ApiKey.PRODUCE, "other")),
    ],
    ids=["priority", "fair"],
)
def test_a_handler_is_kept_for_others(queue, other):
    queue.resized(3)
    greedy = [request(ApiKey.PRODUCE, "greedy") for _ in range(4)]
    assert all(map(queue.offer, greedy))
    assert [queue.take(), queue.take()] == greedy[:2]
    thread, taken = take_in_background(queue)
    assert queue.offer(other)
    thread.join(60)
    assert taken == [other], "the third handler waits for another client"
    thread, taken = take_in_background(queue)
    queue.handled(greedy[0], 1000)
    thread.join(60)
    assert taken == [greedy[2]]
    thread, taken = take_in_background(queue)
    queue.resized(4)
    thread.join(60)
    assert taken == [greedy[3]]


def test_one_handler_alone_serves_all_clients():
    queue = Priority(PrioritySettings(control_handlers=5), 100)
    queue.resized(1)
    assert order(queue, [request(ApiKey.PRODUCE, "data"), request(ApiKey.METADATA, "control")]) == ["control", "data"]


def test_fair_treats_a_network_of_ipv6_as_one_address():
    queue = Fair(FairSettings(by="address"), 100)

    def lane_of(host):
        one = request()
        one.connection.client_address = Address(host, 1)
        return queue.lane(one)

    assert lane_of("2001:db8::1") == lane_of("2001:db8::ffff:1") != lane_of("2001:db8:1::1")
    assert lane_of("::ffff:192.0.2.7") == lane_of("192.0.2.7") != lane_of("192.0.2.8")


def test_fair_serves_clients_in_turns():
    queue = Fair(FairSettings(cost="bytes"), 100)
    greedy = [request(client_id="greedy", size_bytes=70_000) for _ in range(6)]
    taken = order(queue, [*greedy, *(request(client_id="small", size_bytes=70_000) for _ in range(3))])
    assert taken == ["greedy", "small", "greedy", "small", "greedy", "small", "greedy", "greedy", "greedy"]


def time_spent(queue, cost_ns, turns):
    """Return the handler time that each client gets if all of them always have requests queued."""
    spent = dict.fromkeys(cost_ns, 0)
    for client in cost_ns:
        assert queue.offer(request(client_id=client))
        assert queue.offer(request(client_id=client))
    for _ in range(turns):
        one = queue.take()
        spent[one.client_id] += cost_ns[one.client_id]
        assert queue.offer(request(client_id=one.client_id))
        queue.handled(one, cost_ns[one.client_id])
    return spent


@given(st.dictionaries(st.sampled_from("abcde"), st.integers(10_000, 50_000_000), min_size=2))
def test_fair_divides_handler_time_for_any_cost_of_requests(costs):
    spent = time_spent(Fair(FairSettings(by="client_id"), 100), costs, 3000)
    # A client may be ahead by requests whose cost was not yet known, and by a quantum.
    assert max(spent.values()) - min(spent.values()) <= 3 * max(costs.values()) + 2_000_000


def test_weights_divide_handler_time():
    settings = FairSettings(by="client_id", weights={"gold": 3.0})
    spent = time_spent(Fair(settings, 100), {"gold": 2_000_000, "tin": 2_000_000}, 4000)
    assert spent["gold"] / spent["tin"] == pytest.approx(3.0, rel=0.02)


def test_one_client_cannot_fill_the_queue():
    queue = Fair(FairSettings(client_max_queued=0.3), 10)
    assert [queue.offer(request(client_id="greedy")) for _ in range(4)] == [True] * 3 + [False]
    assert queue.offer(request(client_id="other"))
    assert queue.lane_sizes() == {"User:ANONYMOUS/greedy": 3, "User:ANONYMOUS/other": 1}


def test_debts_are_forgotten_when_no_client_waits():
    queue = Fair(FairSettings(by="client_id"), 100)
    queue.offer(request(client_id="slow"))
    queue.handled(queue.take(), 10**12)
    assert order(queue, [request(client_id="slow"), request(client_id="quick")]) == ["slow", "quick"]


@pytest.mark.parametrize(
    ("handlers", "reserved", "is_said"), [(1, 1, True), (2, 1, False), (2, 2, True), (1, 0, False)]
)
def test_handlers_that_cannot_be_reserved_are_warned_of(caplog, handlers, reserved, is_said):
    Priority(PrioritySettings(control_handlers=reserved), 100).resized(handlers)
    assert bool(caplog.records) is is_said
    if is_said:
        assert f"io_threads = {handlers}, {handlers - 1} can be reserved" in caplog.text
