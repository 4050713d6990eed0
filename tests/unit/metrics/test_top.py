"""`klamm top`: what it prints of metrics, and where no server answers."""

import io
import socket

from rich.console import Console

from klamm_metrics.snapshot import Difference, Snapshot
from klamm_metrics.top import frame, main

METRICS = """\
klamm_acceptor_acceptqueuesize{{listener="default"}} {size}
klamm_acceptor_acceptqueuesize{{listener="inner"}} 0
klamm_acceptor_acceptqueuelimit{{listener="default"}} 1024
klamm_acceptor_acceptqueuelimit{{listener="inner"}} 50
klamm_acceptor_listenoverflows_total {overflows}
"""


def printed(seen):
    file = io.StringIO()
    Console(file=file, width=160).print(frame(seen, "http://here/metrics"))
    return [line.split() for line in file.getvalue().splitlines()]


def test_queues_of_new_connections_are_shown_and_how_many_found_them_full():
    before = Snapshot.parse(METRICS.format(size=0, overflows=100), 10.0)
    now = Snapshot.parse(METRICS.format(size=700, overflows=130), 12.0)
    lines = printed(Difference(now, before))
    assert ["default", "700", "1,024", "15/s,", "130", "in", "all"] in lines
    assert ["inner", "0", "50"] in lines


def test_a_system_without_them_has_an_empty_table():
    first = Snapshot.parse("kafka_network_requestchannel_requestqueuesize 0\n", 1.0)
    assert ["Queues", "of", "new", "connections"] in printed(Difference(first, None))


def test_a_refused_connection_is_reported_in_the_systems_words(capsys):
    with socket.socket() as unheard:
        # Bound, and no one listens.
        unheard.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unheard.getsockname()[1]}"
        assert main(["--once", address]) == 1
    assert capsys.readouterr().err == (
        f"klamm top: http://{address}/metrics: Connection refused;"
        ' the server needs [server] extensions = ["prometheus"]\n'
    )
