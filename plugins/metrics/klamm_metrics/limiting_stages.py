"""The rules that find the stages that limit a server, for `klamm explain`. They use no sockets and clocks.

Each rule checks one stage, in two samples of the server's metrics and connections. The rules are in the order in which
a request passes their stages. A finding has a `weight` from 0 to 1: roughly the share of the time, of a queue or of
connections that the stage takes. The finding with the largest weight comes first in the output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from klamm_metrics.culprits import behind, client_of, holders, keeps_accepting, most, parts_of, running, slow_readers
from klamm_metrics.rates import Row, unanswered_line
from klamm_metrics.snapshot import Difference
from klamm_metrics.words import counted, short_bytes

NEEDED: Final = "klamm_processor_busyseconds_total"
"""A metric of each server. Without it, the exporter leaves out metrics that the rules need."""
_BLOCKED: Final = 0.2
_FULL: Final = 0.5
_SETUP: Final = 0.4
_HOT: Final = 0.8
_ONE_CLIENT: Final = 0.5
_DEPLETED: Final = 0.1
_WAITING_HANDSHAKES: Final = 5
_SLOW_READER_MS: Final = 1000
# A share of the busy threads' time, and not all of it, because other programs use the processors too.
_COMPUTES: Final = 0.3
_SECOND_THREAD: Final = 1.5
# If the mean time is this long, the handler or filter itself is slow. Otherwise the client sends many quick requests.
_LONG_MS: Final = 5.0
_OF_THE_LOG: Final = ("Produce", "Fetch")
_NS: Final = 1e9


@dataclass(frozen=True, slots=True)
class Finding:
    """A stage that limits the server. `text` has the numbers, and `look_at` the settings and clients to check."""

    stage: str
    weight: float
    text: str
    look_at: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Samples:
    """Two samples of the metrics, and the second sample of the connections with its rates."""

    seen: Difference
    connections: list[Row]
    unanswered: list[Row]
    listeners: list[Row]

    def shares(self, counter: str, *labels: str) -> dict[tuple[str, ...], float]:
        """Return the share of time that each thread spent, from a counter of seconds; with workers, the mean of all."""
        return {key: min(1.0, rate / self.seen.workers) for key, rate in self.seen.rates(counter, *labels).items()}

    def processors(self, counter: str = "klamm_processor_busyseconds_total") -> dict[tuple[str, ...], float]:
        """Return the busy share of each processor, by listener and number."""
        return self.shares(counter, "listener", "networkProcessor")

    def handlers_busy(self) -> float:
        """Return the busy share of the request handlers."""
        handlers = max(1.0, self.seen.now.value("klamm_requesthandlerpool_size") or 1.0)
        return min(1.0, self.seen.rate("klamm_requesthandlerpool_busyseconds_total") / handlers)

    def computing(self) -> float:
        """Return how many of the machine's processors the server keeps busy."""
        rates = self.seen.rate("process_cpu_seconds_total"), self.seen.rate("klamm_workers_cpuseconds_total")
        return sum(rates)

    def busy_threads(self) -> float:
        """Return the number of busy threads among the processors and handlers."""
        return self.seen.rate("klamm_processor_busyseconds_total") + self.seen.rate(
            "klamm_requesthandlerpool_busyseconds_total"
        )

    def slowest_api(self) -> tuple[str, float, float]:
        """Return the API whose handlers and filters took the most time, their share of time, and the mean in ms."""
        group = "kafka_network_requestmetrics_localtimems"
        totals = {api: rate / 1000 for (api,), rate in self.seen.rates(f"{group}_sum", "request").items()}
        api = max(totals, key=lambda one: totals[one], default="")
        return api, totals.get(api, 0.0), self.seen.means(group, "request").get(api, 0.0)


Rule: TypeAlias = Callable[[Samples], "Iterable[Finding]"]


def findings(seen: Difference, looked: Row) -> list[Finding]:
    """Return the findings, the worst first; an empty list if nothing limits the server."""
    samples = Samples(seen, looked["connections"], looked["unanswered"], looked.get("listeners", []))
    found = [finding for rule in RULES for finding in rule(samples)]
    return sorted(found, key=lambda one: -one.weight)


def accept_blocked(samples: Samples) -> Iterable[Finding]:
    """Find acceptors that wait."""
    # The counter grows once for each connection that waits. So use any value above 0, and not its rate.
    reasons = [labels for labels, count in samples.seen.now.rows("klamm_acceptor_connectionspaused_total") if count]
    for (listener,), share in samples.shares("klamm_acceptor_blockedseconds_total", "listener").items():
        if share < _BLOCKED:
            continue
        why = [
            f"the gate with reason {one.get('reason')} of [listeners.{listener}] gates pauses the acceptor"
            for one in reasons
            if one.get("listener") == listener
        ]
        if samples.seen.rate("klamm_acceptor_descriptorpauses_total"):
            why.append("no free file descriptor: raise the limit of open files (ulimit -n, LimitNOFILE)")
        why = why or [f"gates and max_incoming of [listeners.{listener}]"]
        yield Finding(
            "accept", share, f"the acceptor of listener {listener} waits for {share:.0%} of the time", (*why,)
        )


def backlog(samples: Samples) -> Iterable[Finding]:
    """Find full queues of the operating system for new connections."""
    limits = samples.seen.now
    sizes = {labels.get("listener", ""): size for labels, size in limits.rows("klamm_acceptor_acceptqueuesize")}
    mosts = {labels.get("listener", ""): size for labels, size in limits.rows("klamm_acceptor_acceptqueuelimit")}
    overflows = samples.seen.rate("klamm_acceptor_listenoverflows_total")
    accepted = samples.seen.rates("klamm_acceptor_connectionsaccepted_total", "listener")
    for listener, size in sizes.items():
        share = size / max(1.0, mosts.get(listener, 1.0))
        if share >= _FULL:
            rate = accepted.get((listener,), 0.0)
            # Linux queues one connection more than the limit.
            full = "its queue is full" if size >= mosts[listener] else f"its queue has room for {mosts[listener]:,.0f}"
            text = (
                f"{counted(size, 'connection')} wait{'s' if size == 1 else ''} to be accepted by listener {listener}, "
                f"which accepts {f'{rate:,.1f}/s' if rate else 'none'}; {full}"
            )
            if overflows:
                text += f"; {overflows:,.0f}/s found a full queue on this host"
            why = keeps_accepting(one for one in samples.listeners if one["listener"] == listener)
            why = why or [
                f"gates, max_incoming and processors of [listeners.{listener}]: one of them keeps the acceptor"
            ]
            look_at = (*why, f"backlog of [listeners.{listener}] and net.core.somaxconn, if connections come in bursts")
            # The weight is higher than that of the cause, because clients notice the waiting connections.
            yield Finding("accept", min(1.0, 0.95 * share), text, look_at)


def handshakes(samples: Samples) -> Iterable[Finding]:
    """Find processors that new connections keep busy, and handshakes that wait for a thread."""
    setting_up = [row for row in samples.connections if row["waits_for"] == "set-up"]
    who = Counter(row["client_address"].rpartition(":")[0] for row in setting_up).most_common(1)
    look_at = (
        *(f"address {host}: {counted(count, 'connection')} in set-up" for host, count in who),
        "gates creation_rate and handshake_limit, handshake_threads",
    )
    created = samples.seen.rate("klamm_acceptor_connectionsaccepted_total")
    waiting = samples.seen.now.value("klamm_listener_waitinghandshakes") or 0.0
    shares = samples.processors("klamm_processor_setupseconds_total")
    worst = max(shares, key=lambda one: shares[one], default=None)
    if worst is not None and shares[worst] >= _SETUP:
        text = (
            f"processor {worst[1]} of listener {worst[0]} spends {shares[worst]:.0%} of the time on {created:,.0f} new"
        )
        yield Finding("handshake", min(1.0, shares[worst] + 0.3), f"{text} connections/s", look_at)
    elif waiting >= _WAITING_HANDSHAKES:
        text = f"{waiting:,.0f} handshakes wait for a thread; {created:,.0f} new connections/s"
        yield Finding("handshake", 0.97, text, look_at)


def processors(samples: Samples) -> Iterable[Finding]:
    """Find processors that are busy all the time, and processors whose turn does not end."""
    for row in samples.unanswered:
        yield Finding("processor", 1.0, unanswered_line(row), ("a handler, filter or other part computes there",))
    setup = samples.processors("klamm_processor_setupseconds_total")
    for (listener, number), share in samples.processors().items():
        if share < _HOT or setup.get((listener, number), 0.0) >= _SETUP:
            continue
        rows = [row for row in samples.connections if (row["listener"], str(row["processor"])) == (listener, number)]
        text = f"processor {number} of listener {listener} is busy for {share:.0%} of the time"
        clients = most(rows, "processor_share")
        look_at = [f"{client}: {used:.0%} of the thread" for client, used in clients]
        if clients and clients[0][1] >= _ONE_CLIENT * share:
            text += ", most of it for one client"
        look_at.append(f"processors and assigner of [listeners.{listener}], [server] workers")
        yield Finding("processor", 0.9 * share, text, tuple(look_at))


def request_queue(samples: Samples) -> Iterable[Finding]:
    """Find a full request queue."""
    now = samples.seen.now
    size = now.value("kafka_network_requestchannel_requestqueuesize") or 0.0
    held = now.value("klamm_processor_waitingrequests") or 0.0
    capacity = now.value("klamm_requestchannel_queuecapacity") or 0.0
    if not capacity or (size + held) / capacity < _HOT:
        return
    oldest_ms = now.value("klamm_requestchannel_oldestrequestagems") or 0.0
    text = (
        f"{size:,.0f} of {capacity:,.0f} requests are in the queue and {held:,.0f} wait outside; the oldest for "
        f"{oldest_ms:,.0f} ms; handlers are busy for {samples.handlers_busy():.0%} of the time"
    )
    look_at = [one for one in (behind(samples.connections),) if one]
    waiting = Counter(client_of(row) for row in samples.connections if row["waits_for"] == "queue").most_common(2)
    look_at += [f"{client}: {counted(count, 'request')} wait{'s' if count == 1 else ''}" for client, count in waiting]
    look_at += [f"{client}: {used:.0%} of a handler" for client, used in most(samples.connections, "handler_share")]
    yield Finding("queue", 1.0, text, (*look_at, "io_threads, queued_max_requests and request_scheduler of [server]"))


def handlers(samples: Samples) -> Iterable[Finding]:
    """Find request handlers that are all busy."""
    share = samples.handlers_busy()
    if share >= _HOT:
        look_at = running(samples.connections)
        look_at += [f"{client}: {used:.0%} of a handler" for client, used in most(samples.connections, "handler_share")]
        text = f"all request handlers are busy for {share:.0%} of the time"
        yield Finding("handler", 0.9 * share, text, (*look_at, "io_threads of [server]"))


def interpreter(samples: Samples) -> Iterable[Finding]:
    """Find threads that wait for the interpreter while another thread computes."""
    busy, computing = samples.busy_threads(), samples.computing()
    per_worker = computing / samples.seen.workers
    if per_worker >= _HOT and busy >= _SECOND_THREAD * computing:
        api, _, mean_ms = samples.slowest_api()
        text = (
            f"{busy:.1f} threads are busy, and {computing:.1f} processors of the machine are used: threads wait for "
            "the interpreter"
        )
        look_at = (f"{api}: handlers and filters take {mean_ms:,.1f} ms a request", "[server] workers")
        yield Finding("interpreter", 0.93, text, look_at)


def parts(samples: Samples) -> Iterable[Finding]:
    """Find an API whose handlers and filters compute or wait for most of the time."""
    api, share, mean_ms = samples.slowest_api()
    busy, computing = samples.busy_threads(), samples.computing()
    if busy < _HOT or share < _FULL * busy or mean_ms < _LONG_MS:
        return
    text = f"handlers and filters of {api} take {mean_ms:,.1f} ms a request, {share:.1f} threads in all"
    computes = computing >= _COMPUTES * busy
    # `computing` is 0 if the metrics of the process are not exported.
    if computing and not computes and api in _OF_THE_LOG:
        yield Finding("disk", 0.95, f"{text}; they wait and do not compute", ("the disk of data_dir",))
        return
    why = "they compute" if computes else "they wait, or other programs have the processors of the machine"
    look_at = (*parts_of(samples.listeners, api), "dispatch of the listener, [server] workers")
    yield Finding("handler", 0.92, f"{text}; {why}", look_at)


def disk(samples: Samples) -> Iterable[Finding]:
    """Find syncs of the disk that take much of the time; requests wait for them."""
    sync = "kafka_log_logflushstats_logflushrateandtimems"
    share = min(1.0, samples.seen.rate(f"{sync}_sum") / 1000)
    if share >= _FULL:
        mean_ms = samples.seen.means(sync, "").get("", 0.0)
        syncs = samples.seen.rate(f"{sync}_count")
        text = f"the disk syncs for {share:.0%} of the time: {syncs:,.1f} syncs/s, {mean_ms:,.1f} ms each"
        look_at = (*writers(samples), "the disk of data_dir", "flush.messages of topics")
        yield Finding("disk", share, text, look_at)


def writers(samples: Samples) -> list[str]:
    """Return texts that name the clients whose requests wait for the log, and the topics that grow most."""
    waiting = Counter(client_of(row) for row in samples.connections if row["api"] in _OF_THE_LOG).most_common(3)
    texts = [f"{client}: {counted(count, 'request')} in flight" for client, count in waiting]
    if not texts:
        times = Counter[str]()
        for row in samples.connections:
            times[client_of(row)] += row["processor_share"] + row["handler_share"]
        texts = [f"{client}: {used:.0%} of a thread" for client, used in times.most_common(2) if used >= _DEPLETED]
    grown = samples.seen.rates("kafka_server_brokertopicmetrics_bytesin_total", "topic")
    topics = sorted((rate, topic) for (topic,), rate in grown.items() if topic and rate > 0)[:-3:-1]
    return texts + [f"topic {topic}: {short_bytes(rate)}/s" for rate, topic in topics]


def pool(samples: Samples) -> Iterable[Finding]:
    """Find a depleted memory pool."""
    depleted_ns = samples.seen.rate("kafka_server_socket_server_metrics_memorypooldepletedtime_total")
    depleted = depleted_ns / _NS / samples.seen.workers
    if depleted >= _DEPLETED:
        waiting = samples.seen.now.value("klamm_memorypool_waitingrequests") or 0.0
        used = samples.seen.now.value("kafka_network_socketserver_memorypoolused") or 0.0
        text = f"the memory pool is depleted for {depleted:.0%} of the time; "
        text += f"{counted(waiting, 'request')} wait{'s' if waiting == 1 else ''} for memory"
        look_at = holders(samples.connections)
        look_at.append(f"queued_max_request_bytes of [server]; {short_bytes(used)} are used")
        yield Finding("pool", min(1.0, depleted + 0.5), text, tuple(look_at))


def send(samples: Samples) -> Iterable[Finding]:
    """Find clients that do not read their answers."""
    slow = [row for row in samples.connections if row["waits_for"] == "client reads"]
    slow = [row for row in slow if row["in_flight_ms"] >= _SLOW_READER_MS or row["quiet_ms"] >= _SLOW_READER_MS]
    if slow:
        unsent = sum(row["unsent_bytes"] for row in slow)
        text = f"{counted(len(slow), 'connection')} {'does not read its' if len(slow) == 1 else 'do not read their'} "
        text += f"answers; {short_bytes(unsent)} are unsent"
        yield Finding("send", 0.6, text, (*slow_readers(slow), "the clients and the network to them"))


def quota(samples: Samples) -> Iterable[Finding]:
    """Find clients that are throttled."""
    rates = samples.seen.rates("klamm_clientquota_throttledrequests_total", "quota")
    throttled = [row for row in samples.connections if row["waits_for"] == "throttle"]
    if throttled or any(rates.values()):
        used = samples.seen.now.rows("klamm_clientquota_utilization")
        quotas = {name for (name,), rate in rates.items() if rate}
        quotas |= {labels.get("quota", "") for labels, value in used if value >= 1}
        if not quotas:
            # A throttle can last longer than the windows of rates: then the totals still name the quota.
            totals = samples.seen.now.rows("klamm_clientquota_throttledrequests_total")
            quotas = {labels.get("quota", "") for labels, value in totals if value}
        text = f"throttled connections: {len(throttled)} of {len(samples.connections)}"
        clients = Counter(map(client_of, throttled)).most_common(3)
        look_at = [f"{client}: {counted(count, 'connection')}" for client, count in clients]
        weight = 0.5 + 0.4 * len(throttled) / max(1, len(samples.connections))
        yield Finding("quota", weight, text, (*look_at, *(f"quota {name}" for name in sorted(quotas))))


RULES: Final[tuple[Rule, ...]] = (
    accept_blocked,
    backlog,
    handshakes,
    processors,
    request_queue,
    handlers,
    interpreter,
    parts,
    disk,
    pool,
    send,
    quota,
)
