"""`klamm top` where no server answers."""

import socket

from klamm_metrics.top import main


def test_a_refused_connection_is_said_in_the_systems_words(capsys):
    with socket.socket() as unheard:
        # Bound, and no one listens.
        unheard.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unheard.getsockname()[1]}"
        assert main(["--once", address]) == 1
    assert capsys.readouterr().err == (
        f"klamm top: http://{address}/metrics: Connection refused;"
        ' [server] extensions = ["prometheus"] makes a server answer\n'
    )
