"""The console of a server with several workers."""

import json
import os
import signal

from klamm.testing import EmbeddedServer
from klamm.wire.messages.metadata import MetadataRequest
from tests.contract.gateway_nodes import free_ports
from tests.unit.console.conftest import Browser
from tests.waiting import wait_until

WITH_CONSOLE = """[server]
workers = 3
extensions = ["console"]

[console]
bind = "127.0.0.1:0"

[listeners.front]
bind = "127.0.0.1:0"
api_set = "gateway"
authorizer = "static"
observers = ["audit"]
processors = 2

[listeners.front.static]
rules = [
    "allow User:* ALL TOPIC:*",
    "allow User:* ALL CLUSTER:*",
    "deny User:eve READ TOPIC:payroll",
]

[listeners.front.audit]
spool = "{spool}"
node = "edge"

[gateway]
bootstrap = ["{bootstrap}"]
node_ports = "{port}-{port}"
first_node_id = 1
"""


def test_the_console_shows_all_workers_and_acts_on_them(serve, tmp_path):
    with EmbeddedServer() as broker:
        broker.create_topic("orders")
        spool = tmp_path / "spool"
        serving = serve(WITH_CONSOLE.format(spool=spool, bootstrap=broker.bootstrap, port=free_ports(1)))
        page = Browser(json.loads(serving.ready_file.read_text())["console"])
        assert page.log_in()[0] == 200
        clients = []

        def rows():
            return [row for row in page("connections")[1]["connections"] if row["client_id"] != "klamm-console"]

        def workers_with_one_more_client():
            clients.append(serving.connect())
            clients[-1].call(MetadataRequest(topics=None), 12)
            return {row["worker"] for row in rows()}

        wait_until(lambda: workers_with_one_more_client() == {1, 2, 3}, "not all workers have connections")
        server = page("server")[1]
        (listener,) = server["listeners"]
        assert listener["bound"] == ":".join(map(str, serving.address()))
        assert any(part.startswith("authorizer static of klamm") for part in listener["parts"])
        parts = page(f"listener?name={listener['name']}")[1]["parts"]
        assert [part["settings"] for part in parts if part["name"] == "static"], "a worker has the settings"
        stages = server["stages"]
        assert (stages["workers"], stages["workers_ready"], stages["processors"]) == (3, 3, 6)
        assert stages["connections"] >= len(clients)
        assert [row["name"] for row in page("topics")[1]] == ["orders"]
        own = rows()
        assert page("close_connection", {"id": own[0]["id"]}) == (200, {})
        wait_until(lambda: own[0]["id"] not in {row["id"] for row in rows()})
        moved = page("move_connection", {"id": own[1]["id"], "processor": 1 - own[1]["processor"]})
        assert (moved[0], "bound to its processor" in moved[1]["error"]) == (409, True)
        assert page("close_connection", {"id": "no such"})[0] == 409
        rights = page.rights(principal="User:eve", resource="TOPIC", name="payroll")[1]["operations"]
        assert {row["operation"]: row["allowed"] for row in rights}["READ"] is False
        assert {row["operation"]: row["allowed"] for row in rights}["WRITE"] is True
        assert page.rights(principal="User:eve", resource="NOTHING")[0] == 400

        def acts():
            return [row["action"] for row in page("audit")[1] if "in the console" in str(row.get("detail"))]

        wait_until(lambda: acts() == ["connection_closed"])


def test_a_console_login_continues_after_its_worker_has_ended(serve, tmp_path):
    with EmbeddedServer() as broker:
        spool = tmp_path / "spool"
        serving = serve(WITH_CONSOLE.format(spool=spool, bootstrap=broker.bootstrap, port=free_ports(1)))
        page = Browser(json.loads(serving.ready_file.read_text())["console"])
        assert page.log_in()[0] == 200
        (own,) = page("connections")[1]["connections"]
        os.kill(serving.workers()[own["worker"] - 1], signal.SIGKILL)
        serving.wait_for_line("ended by SIGKILL")
        wait_until(lambda: page("topics")[0] == 200)
        wait_until(lambda: page("server")[1]["stages"]["workers_ready"] == 3)
        assert page("server")[1]["stages"]["workers_restarted"] == 1
