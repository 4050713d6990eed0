"""A client quota applies to all workers together, however the client's traffic is spread over them."""

import random

import pytest

from klamm import KafkaPrincipal, RequestContext, ServerServices
from klamm.runtime import Rate, Scheduler
from klamm.shared import WorkerShare
from klamm.shared.shared_counts import BYTES_PER_WORKER, SharedCounts
from klamm.testing import ManualClock
from klamm_throttling.limits import Limit
from klamm_throttling.manager import PRODUCE, ClientQuotaManager
from klamm_throttling.sensors import RateSensor, SharedUse
from klamm_throttling.throttling_settings import ClientQuotaSettings
from tests.unit.network.fakes import connection_context

KEY = ("producer_byte_rate", "alice", "")
QUOTA = 1000.0


class Simulated:
    """Workers in which a client sends as much as it may, up to what it wants. One step is a second."""

    def __init__(self, count):
        self.table = memoryview(bytearray(BYTES_PER_WORKER * count))
        table = self.table.cast("I")
        shares = [WorkerShare(n, count, SharedCounts(table, n, b"key")) for n in range(1, count + 1)]
        self.part = Limit(QUOTA / count, "alice", "")
        self.uses = [SharedUse(share) for share in shares]
        self.sensors = [RateSensor(use.limit(KEY, self.part), Rate(11, 1000), 0) for use in self.uses]
        self.now_ms = 1

    def second(self, wanted):
        """Let a second pass. Return the amount that was sent in each worker."""
        sent = []
        for use, sensor, most in zip(self.uses, self.sensors, wanted, strict=True):
            room = max(0.0, sensor.limit.value * 11 - sensor.value(self.now_ms) * 10)
            sent.append(min(most, room, sensor.limit.value))
            sensor.record(sent[-1], self.now_ms)
            use.publish({KEY: sensor}, {KEY: self.part}, self.now_ms)
        self.now_ms += 1000
        return sent

    def run(self, wanted, seconds=200):
        """Return what all workers sent together, in each second."""
        return [sum(self.second(wanted)) for _ in range(seconds)]


def settled(totals):
    """Return the mean of the last half."""
    half = totals[len(totals) // 2 :]
    return sum(half) / len(half)


def worst(totals, seconds=11):
    """Return the highest mean of this number of consecutive seconds, over which rates are measured."""
    return max(sum(totals[start : start + seconds]) / seconds for start in range(len(totals) - seconds))


@pytest.mark.parametrize("count", [2, 3, 8])
def test_a_client_in_one_worker_gets_its_whole_quota(count):
    simulated = Simulated(count)
    assert settled(simulated.run([5 * QUOTA] + [0] * (count - 1))) == pytest.approx(QUOTA, rel=0.05)


@pytest.mark.parametrize(("count", "most"), [(2, 1.15), (3, 1.15), (4, 1.15), (8, 1.3)])
def test_a_client_in_all_workers_gets_its_quota_once(count, most):
    totals = Simulated(count).run([5 * QUOTA] * count)
    assert settled(totals) == pytest.approx(QUOTA, rel=0.02)
    assert worst(totals) <= most * QUOTA


def test_quota_that_light_use_leaves_goes_to_the_others():
    simulated = Simulated(4)
    assert settled(simulated.run([5 * QUOTA, 100, 50, 0])) == pytest.approx(QUOTA, rel=0.05)
    assert simulated.sensors[0].limit.value == pytest.approx(850, rel=0.05)


@pytest.mark.parametrize(("count", "most"), [(2, 1.15), (3, 1.15), (8, 1.3)])
def test_a_client_whose_traffic_moves_keeps_its_quota(count, most):
    simulated, rng, totals = Simulated(count), random.Random(16), []
    for _ in range(20):
        wanted = [rng.choice((0, 5 * QUOTA)) for _ in range(count)]
        totals += simulated.run(wanted, 30)
    assert worst(totals) <= most * QUOTA
    assert sum(totals) / len(totals) >= 0.7 * QUOTA


def test_the_others_get_the_quota_of_a_killed_worker_or_an_expired_sensor():
    simulated = Simulated(2)
    simulated.run([5 * QUOTA, 5 * QUOTA])
    assert simulated.uses[0].limit(KEY, simulated.part).value < 0.6 * QUOTA
    simulated.uses[1].publish({}, {}, simulated.now_ms)
    assert simulated.uses[0].limit(KEY, simulated.part).value == QUOTA
    simulated.run([5 * QUOTA, 5 * QUOTA])
    simulated.table[BYTES_PER_WORKER:] = bytes(BYTES_PER_WORKER)
    assert simulated.uses[0].limit(KEY, simulated.part).value == QUOTA


def test_one_process_has_the_quota_itself():
    part = Limit(QUOTA, "alice", "")
    assert SharedUse(WorkerShare()).limit(KEY, part) is part


def test_the_managers_of_two_workers_share_a_quota():
    """The scheduler and the throttle's own calls do this: the use in one worker limits the other."""
    clock, table = ManualClock(), memoryview(bytearray(2 * BYTES_PER_WORKER)).cast("I")
    settings = ClientQuotaSettings(users={"alice": {"producer_byte_rate": QUOTA}})
    managers, schedulers = [], []
    for number in (1, 2):
        services = ServerServices(clock, Scheduler(clock))
        services.worker = WorkerShare(number, 2, SharedCounts(table, number, b"key"))
        managers.append(ClientQuotaManager(services, settings))
        schedulers.append(services.scheduler)
    context = RequestContext(connection_context("a"), None, PRODUCE, 9, 1, "c")
    context.connection.principal = KafkaPrincipal("alice")

    def throttled(used, seconds):
        """Return the throttle times of clients that produce most of the quota in each second, in these workers."""
        times_ms = []
        for _ in range(seconds):
            times_ms += [manager.charge(context, int(0.8 * QUOTA), 0.0) for manager in used]
            clock.advance_ms(1000)
            for scheduler in schedulers:
                scheduler.run_due()
        return times_ms

    assert throttled(managers[:1], 30) == [0] * 30
    assert max(throttled(managers, 12)) > 0
