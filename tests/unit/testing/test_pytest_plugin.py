"""Tests of the pytest plugin: suites that use its fixtures, in a separate pytest."""

import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
from _pytest.assertion import AssertionState
from _pytest.assertion.rewrite import AssertionRewritingHook

import klamm_pytest


@pytest.fixture
def run(tmp_path):
    """Return `run(SUITE, *arguments, ini=…)`, which returns exit code and output."""

    def run_suite(suite, *arguments, ini="", plugins=("klamm_pytest",)):
        (tmp_path / "test_suite.py").write_text(textwrap.dedent(suite), encoding="utf-8")
        (tmp_path / "pytest.ini").write_text(f"[pytest]\n{textwrap.dedent(ini)}", encoding="utf-8")
        # Only the named plugins are loaded, because klamm's plugin may be installed or not.
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        named = [word for plugin in plugins for word in ("-p", plugin)]
        command = [sys.executable, "-m", "pytest", "-q", *named, "-p", "no:cacheprovider", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    return run_suite


def test_fixtures_share_a_server_and_name_topics_after_tests(run):
    code, output = run(
        """
        import pytest

        seen = []

        def test_a_topic(klamm_server, klamm_topic):
            klamm_server.produce(klamm_topic, "value")
            assert [one.value for one in klamm_server.consume(klamm_topic)] == [b"value"]
            assert klamm_topic.startswith("test_a_topic-")
            seen.append((klamm_server, klamm_topic))

        @pytest.mark.parametrize("what", ["a b/c"])
        def test_another_topic(klamm_server, klamm_topic, klamm_admin, what):
            server, topic = seen[0]
            assert klamm_server is server
            assert klamm_topic != topic
            assert klamm_admin.topics() == {topic: 1, klamm_topic: 1}
            assert klamm_topic.startswith("test_another_topic-a-b-c-")

        def test_faults_go_with_their_test(klamm_server, klamm_topic):
            klamm_server.faults.add("disconnect", api="Produce")

        def test_there_are_none_left(klamm_server):
            assert klamm_server.faults.faults == ()

        @pytest.mark.klamm("num.partitions=7")
        def test_a_broker_of_its_own(klamm_broker, klamm_topic):
            assert klamm_broker is not seen[0][0]
            assert klamm_broker.admin.topics() == {klamm_topic: 1}
            settings = klamm_broker.plan.api_sets["broker"].settings
            assert settings.num_partitions == 7
            assert settings.message_max_bytes == 1234
    """,
        ini="klamm_settings =\n    message.max.bytes=1234\n",
    )
    assert code == 0, output
    assert "5 passed" in output


ASKS = """
        from klamm.testing import RawClient
        from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
        from klamm.wire.messages.heartbeat import HeartbeatRequest
        from klamm.wire.messages.list_groups import ListGroupsRequest

        def ask(server, group, beats=0):
            with RawClient(server.address(), client_id="mine") as client:
                client.call(FindCoordinatorRequest(group), 3)
                client.call(ListGroupsRequest(), 4)
                for _ in range(beats):
                    client.call(HeartbeatRequest(group), 4)
"""


def timeline_in(output):
    """Return the lines of the timeline in a report, and the path of its page."""
    *lines, page = re.search(r"klamm: timeline -*\n(.*?\.html)\n", output, re.DOTALL)[1].splitlines()
    return lines, Path(page)


def test_the_report_of_a_failing_test_is_a_timeline(run, tmp_path):
    code, output = run(
        ASKS
        + """
        def test_before(klamm_server):
            ask(klamm_server, "of another test")

        def test_failing(klamm_server):
            ask(klamm_server, "group", beats=100)
            assert klamm_server is None, "a reason"
    """,
        "--klamm-timeline=pages",
    )
    assert code == 1, output
    assert "1 failed, 1 passed" in output
    lines, page = timeline_in(output)
    assert all(len(line) <= 80 for line in lines)
    assert "\x1b" not in output
    asked, listed, beaten, failed = (re.sub(r"^ *-?[0-9.]+ +", "", line) for line in lines[3:])
    assert asked == "a1   FindCoordinator group"
    assert listed == "a1   ListGroups"
    assert beaten == "a1 x Heartbeat group: UNKNOWN_MEMBER_ID, 100 times"
    assert failed == ".. # the test failed: AssertionError: a reason"
    assert page.parent == tmp_path / "pages"
    shown = page.read_text(encoding="utf-8")
    assert "Heartbeat group: UNKNOWN_MEMBER_ID, 100 times" in shown
    assert "of another test" not in output + shown


def test_a_timeline_is_written_beside_the_other_reports(run, tmp_path):
    suite = (
        ASKS
        + """
        def test_failing(klamm_server):
            ask(klamm_server, "group")
            assert 0
    """
    )
    _code, output = run(suite, "--junitxml=reports/junit.xml")
    assert timeline_in(output)[1].parent == tmp_path / "reports" / "klamm-timeline"
    _code, output = run(suite, f"--basetemp={tmp_path / 'base'}")
    assert timeline_in(output)[1].parent == tmp_path / "base" / "klamm-timeline"
    _code, output = run(suite, "--klamm-timeline=pytest.ini")
    assert "its page cannot be written: " in output


def test_a_timeline_begins_with_the_fixtures_of_its_test(run):
    code, output = run(
        ASKS
        + """
        import pytest

        @pytest.fixture
        def broken(klamm_server):
            ask(klamm_server, "group")
            raise RuntimeError("a reason")

        def test_failing(broken):
            pass
    """,
        "--klamm-timeline=pages",
    )
    assert code == 1, output
    assert timeline_in(output)[0][-1].endswith("# the test failed: RuntimeError: a reason")


def test_klamms_modules_are_not_rewritten(pytestconfig):
    hook = AssertionRewritingHook(pytestconfig)
    hook.mark_rewrite("klamm_made_up", "klamm_other.made_up", "mine")
    state = AssertionState(pytestconfig, "rewrite")
    assert hook._is_marked_for_rewrite("klamm_made_up.part", state)
    klamm_pytest.pytest_configure(
        SimpleNamespace(pluginmanager=SimpleNamespace(rewrite_hook=hook), addinivalue_line=lambda name, line: None)
    )
    assert [
        hook._is_marked_for_rewrite(name, state) for name in ("klamm_made_up.part", "klamm_other.made_up", "mine")
    ] == [
        False,
        False,
        True,
    ]


def test_a_marker_without_effect_is_refused(run):
    code, output = run("""
        import pytest

        @pytest.mark.klamm("num.partitions=7")
        def test_mixed_up(klamm_server):
            pass
    """)
    assert code == 1
    assert "the marker klamm makes a broker for the fixture `klamm_broker`; this test uses `klamm_server`" in output


def test_a_marker_adds_faults_at_random(run):
    code, output = run("""
        import pytest
        from klamm.testing import RawClient
        from klamm.wire.messages.list_groups import ListGroupsRequest

        seen = []

        def lost(server):
            found = []
            for number in range(200):
                with RawClient(server.address(), client_id="mine") as client:
                    try:
                        client.call(ListGroupsRequest(), 4)
                    except ConnectionError:
                        found.append(number)
            return found

        @pytest.mark.klamm_chaos(seed=7, times=20)
        @pytest.mark.parametrize("number", [1, 2])
        def test_twice(klamm_server, number):
            # Waiting is not what this test is about.
            for fault in klamm_server.faults.faults:
                fault.remove() if fault.rule.delay_ms else None
            seen.append(lost(klamm_server))

        def test_it_was_the_same(klamm_server):
            assert klamm_server.faults.faults == ()
            assert seen[0] == seen[1] != []
            assert lost(klamm_server) == []

        @pytest.mark.klamm_chaos
        @pytest.mark.klamm
        def test_a_broker_of_its_own(klamm_broker):
            assert {fault.rule.probability for fault in klamm_broker.faults.faults} <= {0.05, 0.02, 0.01, 0.005, 0.002}
            assert len(klamm_broker.faults.faults) == 11

        @pytest.mark.klamm_chaos
        def test_without_a_broker():
            pass
    """)
    assert code == 1, output
    assert "the marker klamm_chaos is for tests that use a fixture with a broker" in output
    assert "4 passed, 1 error" in output


def test_nothing_is_imported_until_a_test_uses_it(run):
    code, output = run("""
        import sys

        def test_plain():
            assert [name for name in sys.modules if name == "klamm" or name.startswith("klamm.")] == []
    """)
    assert code == 0, output


def test_workers_of_xdist_have_separate_brokers(run):
    suite = """
        import pytest

        @pytest.mark.parametrize("number", range(8))
        def test_topics(klamm_server, klamm_topic, number, worker_id):
            print(worker_id, klamm_server.bootstrap)
            klamm_server.produce(klamm_topic, str(number))
            assert [one.value for one in klamm_server.consume(klamm_topic)] == [str(number).encode()]
    """
    code, output = run(suite, "-n", "2", "-rP", plugins=("klamm_pytest", "xdist"))
    assert code == 0, output
    assert len(set(re.findall(r"^gw\d 127.0.0.1:\d+$", output, re.MULTILINE))) == 2


@pytest.mark.once
def test_clients_can_authenticate(run):
    code, output = run("""
        from confluent_kafka import Consumer, KafkaException, Producer
        import pytest

        def produce(settings, topic):
            seen = []
            producer = Producer(settings)
            producer.produce(topic, b"value", on_delivery=lambda error, _: seen.append(error and error.name()))
            producer.flush(20)
            return seen

        def test_an_admin(klamm_secure):
            topic = klamm_secure.create_topic()
            assert produce(klamm_secure.client_settings("confluent-kafka"), topic) == [None]

        def test_a_user(klamm_secure):
            topic = klamm_secure.create_topic()
            klamm_secure.add_user("alice", "her own")
            settings = klamm_secure.client_settings("confluent-kafka", "alice")
            assert produce(settings, topic) == ["TOPIC_AUTHORIZATION_FAILED"]
            klamm_secure.allow("alice", "WRITE", "TOPIC", topic)
            assert produce(settings, topic) == [None]

        def test_others(klamm_secure):
            from kafka import KafkaProducer

            topic = klamm_secure.create_topic()
            producer = KafkaProducer(**klamm_secure.client_settings("kafka-python"))
            assert producer.send(topic, b"value").get(20).offset == 0
            producer.close()

        def test_async(klamm_secure):
            import asyncio
            from aiokafka import AIOKafkaProducer

            async def main(topic):
                async with AIOKafkaProducer(**klamm_secure.client_settings("aiokafka")) as producer:
                    return (await producer.send_and_wait(topic, b"value")).offset

            assert asyncio.run(main(klamm_secure.create_topic())) == 0

        def test_the_helpers(klamm_secure):
            with pytest.raises(ValueError, match='not for "kcat"'):
                klamm_secure.client_settings("kcat")
            assert klamm_secure.client_settings("kafkajs")["sasl"]["mechanism"] == "scram-sha-512"
            with pytest.raises(KeyError):
                klamm_secure.client_settings("java", "mallory")
            assert klamm_secure.client_settings("java")["security.protocol"] == "SASL_SSL"
    """)
    assert code == 0, output
    assert "5 passed" in output


SIMULATED = """
        import pytest
        from klamm.testing import RawClient
        from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
        from klamm.wire.messages.metadata import MetadataRequest

        def fingerprint(server):
            server.connect().call(CreateTopicsRequest([CreatableTopic("orders", 1, 1, [], [])]), 7)
            print("given", server.fingerprint())
"""


def test_a_failing_test_prints_its_seed_and_the_command_that_repeats_it(run, tmp_path):
    suite = SIMULATED + (
        """
        @pytest.mark.parametrize("what", ["a b"])
        def test_failing(klamm_simulation, what):
            fingerprint(klamm_simulation)
            assert 0
    """
    )
    code, output = run(suite)
    assert code == 1, output
    found = re.search(r"klamm: seed -*\nseed (\d+); again: python -m pytest (.*) --klamm-seed (\d+)\n", output)
    assert found is not None, output
    seed, test, again = found.groups()
    assert (again, shlex.split(test)) == (seed, ["test_suite.py::test_failing[a b]"])
    _code, repeated = run(suite, *shlex.split(test), "--klamm-seed", seed)
    given = re.compile("given .*")
    assert given.findall(repeated) == given.findall(output)
    assert given.findall(run(suite)[1]) != given.findall(output)


def test_the_seed_of_a_marker_applies_unless_the_command_line_has_one(run):
    suite = SIMULATED + (
        """
        @pytest.mark.klamm("num.partitions=7", seed=5)
        def test_seed(klamm_simulation, klamm_seed, pytestconfig):
            assert klamm_simulation.seed == klamm_seed == (pytestconfig.getoption("--klamm-seed") or 5)
            settings = klamm_simulation.server.plan.api_sets["broker"].settings
            assert settings.num_partitions == 7

        @pytest.mark.klamm(seed=5)
        def test_random_numbers(klamm_broker, klamm_topic):
            klamm_broker.create_topic()
            with RawClient(klamm_broker.address()) as client:
                found = client.call(MetadataRequest(None), 12)
            print("given", found.cluster_id, sorted((each.name, each.topic_id) for each in found.topics))
    """
    )
    first, second, other = (run(suite, "-rP", *more) for more in ((), (), ("--klamm-seed", "6")))
    assert [code for code, _output in (first, second, other)] == [0, 0, 0], (first, other)
    ids = [re.search("given .*", output)[0] for _code, output in (first, second, other)]
    assert ids[0] == ids[1] != ids[2]
