"""The command `klamm top`: a live view of a running server, from the metrics of its extension `prometheus`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from klamm_metrics.limiting_stages import NEEDED, findings
from klamm_metrics.rates import Row, with_rates
from klamm_metrics.running_server import RunningServer, UnreachableError, add_server_arguments, find
from klamm_metrics.snapshot import Difference, Snapshot
from klamm_metrics.words import plain, printable, short_bytes, short_number, terminal

_ROWS: Final = 12
_BAR: Final = 10
_SHOWN_STAGES: Final = 3
# A pool without a limit reports 2^63 - 1 bytes.
_NO_LIMIT: Final = 1 << 62


def main(arguments: list[str]) -> int:
    """Show a server until the command is interrupted. Return the exit code."""
    parser = argparse.ArgumentParser(
        prog="klamm top", description="Show a running server live, from the metrics of its extension prometheus."
    )
    add_server_arguments(parser)
    parser.add_argument(
        "--interval", metavar="SECONDS", type=float, default=2.0, help="time between two samples; default: 2"
    )
    parser.add_argument("--once", action="store_true", help="print one frame, of one interval, and end")
    parser.add_argument("--token-file", metavar="FILE", type=Path, help="default: that of the TOML file")
    options = parser.parse_args(arguments)
    if options.interval <= 0:
        parser.error("--interval must be more than 0")
    try:
        server = find(options.server, options.token_file)
        if options.once:
            return _once(server, options.interval)
        return _live(server, options.interval)
    except UnreachableError as error:
        print(f"klamm top: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0


def fetch(server: RunningServer, clock: Callable[[], float] = time.monotonic) -> Snapshot:
    """Read the metrics once. Raises UnreachableError."""
    text = server.read(server.metrics_url)
    try:
        return Snapshot.parse(text, clock())
    except ValueError as error:
        raise UnreachableError(f"{server.metrics_url}: {error}") from error


def _once(server: RunningServer, interval_s: float) -> int:
    first, earlier = fetch(server), _look(server)
    time.sleep(interval_s)
    seen = Difference(fetch(server), first)
    terminal().print(frame(seen, server.metrics_url, _rated(_look(server), earlier, seen)))
    return 0


def _live(server: RunningServer, interval_s: float) -> int:
    before, earlier = None, None
    with Live(screen=True, auto_refresh=False) as live:
        while True:
            seen, looked = Difference(fetch(server), before), _look(server)
            live.update(frame(seen, server.metrics_url, _rated(looked, earlier, seen)), refresh=True)
            before, earlier = seen.now, looked
            time.sleep(interval_s)


def _look(server: RunningServer) -> Row | str:
    """Return the connections, or the reason why the server does not show them, e.g. because it requires a token."""
    try:
        return server.connections()
    except UnreachableError as error:
        return str(error)


def _rated(now: Row | str, before: Row | str | None, seen: Difference) -> Row | str | None:
    """Return the connections with rates; the reason, if there are none; None after the first sample."""
    if isinstance(now, str) or before is None:
        return now if isinstance(now, str) else None
    return before if isinstance(before, str) else with_rates(now, before, seen.seconds)


def frame(seen: Difference, url: str, looked: Row | str | None = None) -> RenderableType:
    """Return the screen for one sample of the server. `looked` has its connections, or the reason why it has none."""
    parts: list[RenderableType] = [_summary(seen, url)]
    if looked is not None:
        parts.append(_limits(seen, looked))
    parts += [_processors(seen), _lanes(seen), _accept_queues(seen), _apis(seen), _clients(seen)]
    slow = None if looked is None or isinstance(looked, str) else _slow_readers(looked)
    tables = (_disk(seen), slow, _throttles(seen), _throttled(seen))
    parts += [table for table in tables if table is not None]
    return Group(*parts)


def _limits(seen: Difference, looked: Row | str) -> Text:
    """Return what `klamm explain` finds: the stages that limit the server now, the worst first, and who or what to look
    at first.
    """
    if isinstance(looked, str):
        return Text(printable(f"limits now: unknown without the connections: {looked}") + "\n")
    found = findings(seen, looked)
    if not found and seen.now.value(NEEDED) is None:
        return Text(f"limits now: unknown without {NEEDED}: see [prometheus] include\n")
    lines = ["limits now:" if found else "limits now: nothing"]
    for one in found[:_SHOWN_STAGES]:
        lines += [f"  {one.stage}: {one.text}", f"    look at: {'; '.join(one.look_at)}"]
    return Text("\n".join(map(printable, lines)) + "\n")


def _summary(seen: Difference, url: str) -> Text:
    now = seen.now
    pool_used = now.value("kafka_network_socketserver_memorypoolused")
    pool_free = now.value("kafka_network_socketserver_memorypoolavailable")
    resident = now.value("process_resident_memory_bytes")
    of_workers = now.value("klamm_workers_residentmemorybytes")
    errors = sum(
        rate
        for (error,), rate in seen.rates("kafka_network_requestmetrics_errors_total", "error").items()
        if error != "NONE"
    )
    lines = [
        f"klamm top  {url}  "
        + (f"over {seen.seconds:.1f} s" if seen.before is not None else "first sample: no rates yet"),
        f"requests {short_number(seen.rate('kafka_network_requestmetrics_requests_total'))}/s   "
        f"errors {short_number(errors)}/s   "
        f"in {short_bytes(seen.rate('kafka_server_socket_server_metrics_incoming_byte_total'))}/s   "
        f"out {short_bytes(seen.rate('kafka_server_socket_server_metrics_outgoing_byte_total'))}/s   "
        f"connections {short_number(now.value('kafka_server_socket_server_metrics_connection_count') or 0)}   "
        f"accepted {short_number(seen.rate('klamm_acceptor_connectionsaccepted_total'))}/s   "
        + "   ".join(
            f"{outcome} {short_number(seen.rate(f'klamm_acceptor_connections{outcome}_total'))}/s"
            for outcome in ("refused", "delayed", "paused")
        ),
    ]
    lines.append(
        "   ".join(
            f"{words} {short_number(seen.rate(name))}/s"
            for words, name in (
                ("failed logins", "kafka_server_socket_server_metrics_failed_authentication_total"),
                ("idle closes", "klamm_listener_idleconnectionsclosed_total"),
                ("memory evictions", "klamm_memorypool_evictions_total"),
            )
        )
    )
    memory = [f"resident {short_bytes(resident)}"] if resident is not None else []
    if of_workers is not None:
        ready, count = now.value("klamm_workers_ready") or 0, now.value("klamm_workers_count") or 0
        memory.append(f"of workers {short_bytes(of_workers)}   workers {short_number(ready)} of {short_number(count)}")
    if pool_used is not None and pool_free is not None and pool_free < _NO_LIMIT:
        depleted = _depleted(seen)
        memory.append(f"pool {short_bytes(pool_used)} of {short_bytes(pool_used + pool_free)}, depleted {depleted:.0%}")
    if memory:
        lines.append("memory " + "   ".join(memory))
    return Text("\n".join(lines) + "\n")


def _processors(seen: Difference) -> Table:
    table = _table("Processors", "listener", "processor", "busy", "", "connections", "responses waiting", "last turn")
    now = seen.now
    connections = _by_processor(now, "kafka_server_socket_server_metrics_connection_count", "networkProcessor")
    responses = _by_processor(now, "kafka_network_requestchannel_responsequeuesize", "processor")
    ages = _by_processor(now, "klamm_processor_turnagems", "networkProcessor")
    for (listener, processor), busy in sorted(_busy(seen).items()):
        key = (listener, processor)
        table.add_row(
            listener,
            processor,
            f"{busy:.0%}",
            _bar(busy),
            short_number(connections.get(key, 0)),
            short_number(responses.get(key, 0)),
            f"{short_number(ages.get(key, 0))} ms ago",
        )
    return table


def _busy(seen: Difference) -> dict[tuple[str, str], float]:
    """Return the busy share of each processor over the interval.

    For the first sample it is the share over the server's own window, and so it is for several workers, because their
    counters are sums.
    """
    rates = seen.rates("klamm_processor_busyseconds_total", "listener", "networkProcessor")
    if rates and seen.now.value("klamm_workers_count") is None:
        return {(listener, number): min(1.0, rate) for (listener, number), rate in rates.items()}
    idle = _by_processor(seen.now, "kafka_network_processor_idle_percent", "networkProcessor")
    return {key: 1 - share for key, share in idle.items()}


def _handlers_busy(seen: Difference) -> float:
    rates = seen.rates("klamm_requesthandlerpool_busyseconds_total")
    if rates:
        handlers = max(1.0, seen.now.value("klamm_requesthandlerpool_size") or 1.0)
        return min(1.0, sum(rates.values()) / handlers)
    idle = _mean(seen.now, "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent")
    return 1 - idle if idle is not None else 0.0


def _depleted(seen: Difference) -> float:
    rates = seen.rates("kafka_server_socket_server_metrics_memorypooldepletedtime_total")
    if rates:
        return min(1.0, sum(rates.values()) / 1e9 / seen.workers)
    return _mean(seen.now, "kafka_server_socket_server_metrics_memorypoolavgdepleted_percent") or 0.0


def _lanes(seen: Difference) -> Table:
    table = _table("Request handlers", "lane", "waiting", "handlers", "busy", "", "queue full")
    now = seen.now
    busy = _handlers_busy(seen)
    handlers = short_number(now.value("klamm_requesthandlerpool_size") or 0)
    full = f"{short_number(seen.rate('klamm_requestchannel_queuefull_total'))}/s"
    sizes: dict[str, float] = {}
    for labels, size in now.rows("klamm_requestchannel_lanesize"):
        sizes[labels.get("lane", "")] = sizes.get(labels.get("lane", ""), 0.0) + size
    for number, (lane, size) in enumerate(sizes.items()):
        rest = (handlers, f"{busy:.0%}", _bar(busy), full) if number == 0 else ("", "", "", "")
        table.add_row(plain(lane), short_number(size), *rest)
    return table


def _accept_queues(seen: Difference) -> Table:
    """Return a table of the operating system's queues of new connections.

    It also has the time that acceptors waited, and how often a queue was full on the whole host.
    """
    columns = ("listener", "waiting", "at most", "accept blocked", "queue full, of this host")
    table = _table("Queues of new connections", *columns)
    blocked = seen.rates("klamm_acceptor_blockedseconds_total", "listener")
    overflows = "klamm_acceptor_listenoverflows_total"
    full = f"{short_number(seen.rate(overflows))}/s, {short_number(seen.now.value(overflows) or 0)} in all"
    limits = _by_listener(seen.now, "klamm_acceptor_acceptqueuelimit")
    for number, (listener, size) in enumerate(_by_listener(seen.now, "klamm_acceptor_acceptqueuesize").items()):
        share = min(1.0, blocked.get((listener.rpartition("/")[2],), 0.0) / seen.workers)
        most = short_number(limits.get(listener, 0))
        table.add_row(listener, short_number(size), most, f"{share:.0%}", full if number == 0 else "")
    return table


def _apis(seen: Difference) -> Table:
    group = "kafka_network_requestmetrics_"
    table = _table("APIs", "api", "requests/s", "errors/s", "mean ms", "queue", "local", "remote", "send")
    rates = seen.rates(f"{group}requests_total", "request")
    if seen.before is None:
        rates = {(labels.get("request", ""),): 0.0 for labels, _ in seen.now.rows(f"{group}requests_total")}
    errors: dict[str, float] = {}
    for (api, error), rate in seen.rates(f"{group}errors_total", "request", "error").items():
        if error != "NONE":
            errors[api] = errors.get(api, 0.0) + rate
    stages = [
        seen.means(f"{group}{stage}", "request")
        for stage in ("totaltimems", "requestqueuetimems", "localtimems", "remotetimems", "responsesendtimems")
    ]
    for (api,), rate in sorted(rates.items(), key=lambda one: -one[1])[:_ROWS]:
        if rate or seen.before is None:
            means = [short_number(stage[api]) if api in stage else "–" for stage in stages]
            table.add_row(api, short_number(rate), short_number(errors.get(api, 0.0)), *means)
    return table


def _clients(seen: Difference) -> Table:
    columns = (
        "client id",
        "principal",
        "host",
        "listener",
        "processor time",
        "handler time",
        "requests/s",
        "in",
        "out",
    )
    table = _table("Clients that use the most time", *columns)
    labels = ("client_id", "principal", "host", "listener")
    requests = seen.rates("klamm_client_requests_total", *labels, new=False)
    processor = seen.rates("klamm_client_processorseconds_total", *labels, new=False)
    handler = seen.rates("klamm_client_handlerseconds_total", *labels, new=False)
    received = seen.rates("klamm_client_receivedbytes_total", *labels, new=False)
    sent = seen.rates("klamm_client_sentbytes_total", *labels, new=False)

    def used(key: tuple[str, ...]) -> tuple[float, float]:
        return processor.get(key, 0.0) + handler.get(key, 0.0), requests[key]

    for key in sorted(requests, key=used, reverse=True)[:_ROWS]:
        table.add_row(
            *map(plain, key),
            f"{processor.get(key, 0.0):.1%}",
            f"{handler.get(key, 0.0):.1%}",
            short_number(requests[key]),
            f"{short_bytes(received.get(key, 0.0))}/s",
            f"{short_bytes(sent.get(key, 0.0))}/s",
        )
    return table


def _disk(seen: Difference) -> Table | None:
    """Return a table of the time in which the disk syncs, and of the threads in Produce and Fetch, because these wait
    for the disk. None without a log.
    """
    sync = "kafka_log_logflushstats_logflushrateandtimems"
    if seen.now.value(f"{sync}_count") is None:
        return None
    columns = ("syncing", "", "syncs/s", "mean ms", "written/s", "threads in Produce", "threads in Fetch")
    table = _table("Disk", *columns)
    share = min(1.0, seen.rate(f"{sync}_sum") / 1000 / seen.workers)
    local = seen.rates("kafka_network_requestmetrics_localtimems_sum", "request")
    table.add_row(
        f"{share:.0%}",
        _bar(share),
        short_number(seen.rate(f"{sync}_count")),
        short_number(seen.means(sync, "").get("", 0.0)),
        short_bytes(seen.rates("kafka_server_brokertopicmetrics_bytesin_total", "topic").get(("",), 0.0)),
        *(f"{local.get((api,), 0.0) / 1000:.2f}" for api in ("Produce", "Fetch")),
    )
    return table


def _slow_readers(looked: Row) -> Table | None:
    """Return a table of the connections whose clients have not read their answers; None if there are none."""
    rows = [row for row in looked["connections"] if row["unsent_bytes"]]
    if not rows:
        return None
    table = _table("Clients that do not read", "client id", "principal", "address", "waits ms", "unsent", "held")
    for row in sorted(rows, key=lambda one: -one["unsent_bytes"])[:_ROWS]:
        table.add_row(
            *(plain(row[name]) for name in ("client_id", "principal", "client_address")),
            short_number(max(row["in_flight_ms"], row["quiet_ms"])),
            *(short_bytes(row[name]) for name in ("unsent_bytes", "held_bytes")),
        )
    return table


def _throttles(seen: Difference) -> Table | None:
    group = "klamm_clientquota_"
    totals = {labels.get("quota", ""): value for labels, value in seen.now.rows(f"{group}throttledrequests_total")}
    times_ms = {labels.get("quota", ""): value for labels, value in seen.now.rows(f"{group}throttletimems_total")}
    if not any(totals.values()):
        return None
    table = _table("Throttles", "quota", "requests/s", "throttled ms/s", "requests in all", "seconds in all", "mean ms")
    rates = seen.rates(f"{group}throttledrequests_total", "quota")
    time_rates = seen.rates(f"{group}throttletimems_total", "quota")
    for quota, total in sorted(totals.items()):
        if total:
            time_ms = times_ms.get(quota, 0.0)
            table.add_row(
                quota,
                short_number(rates.get((quota,), 0.0)),
                short_number(time_rates.get((quota,), 0.0)),
                short_number(total),
                short_number(time_ms / 1000),
                short_number(time_ms / total),
            )
    return table


def _throttled(seen: Difference) -> Table | None:
    rows = [row for row in seen.now.rows("klamm_clientquota_utilization") if row[1] > 0]
    if not rows:
        return None
    table = _table("Most used quotas", "quota", "user", "client id", "used")
    for labels, value in sorted(rows, key=lambda row: -row[1])[:_ROWS]:
        names = (plain(labels.get(name, "")) for name in ("quota", "user", "client_id"))
        table.add_row(*names, f"{value:.0%}")
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="dim")
    for column in columns:
        numeric = column.endswith(("/s", "ms", "in all")) or column in (
            "busy",
            "in",
            "out",
            "used",
            "waiting",
            "at most",
            "connections",
            "accept blocked",
            "processor time",
            "handler time",
            "syncing",
            "threads in Produce",
            "threads in Fetch",
            "unsent",
            "held",
        )
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    return table


def _by_processor(now: Snapshot, name: str, label: str) -> dict[tuple[str, str], float]:
    found = {}
    for labels, value in now.rows(name):
        if labels.get(label):
            # With several workers, each has a processor with this number.
            worker = f"{labels['worker']}/" if "worker" in labels else ""
            found[labels.get("listener", ""), worker + labels[label]] = value
    return found


def _by_listener(now: Snapshot, name: str) -> dict[str, float]:
    """Return the values of a metric by listener, or by worker and listener if there are several workers."""
    return {
        (f"{labels['worker']}/" if "worker" in labels else "") + labels.get("listener", ""): value
        for labels, value in now.rows(name)
    }


def _mean(now: Snapshot, name: str) -> float | None:
    """Return the mean of a metric over all workers; None if the metric does not exist."""
    values = [value for _, value in now.rows(name)]
    return sum(values) / len(values) if values else None


def _bar(share: float) -> str:
    filled = round(min(1.0, max(0.0, share)) * _BAR)
    return "█" * filled + "░" * (_BAR - filled)
