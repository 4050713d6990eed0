"""Findings are once in the file, even after kills, at least once in other outputs, and valid OCSF."""

import json
import random
import socketserver
import threading
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count

import jsonschema
import pytest
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema

from klamm_spark.errors import LakeError
from klamm_spark.findings.detections import Finding, own_detections
from klamm_spark.findings.log import STATE_SUFFIX, FindingLog
from klamm_spark.findings.ocsf import detection_finding
from klamm_spark.findings.outputs import Deliveries, DeliveryError, RefusedError, Webhook, outputs_of
from klamm_spark.settings.findings import DetectSettings
from klamm_spark.storage.files import SpoolFiles

HOUR_US = 3_600_000_000
DETECTIONS = {one.name: one for one in own_detections()}
BRUTE_FORCE = DETECTIONS["brute_force"]


def finding(address="10.0.0.1", first_us=0, last_us=0, principal="User:a", **changes):
    events = f"n/b/{first_us}", f"n/b/{last_us}"
    return Finding(principal, address, "front", 5, first_us, last_us, *events, "5 failed logins")._replace(**changes)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "findings.jsonl"


@pytest.fixture
def open_log(path):
    logs = []

    def start(**options):
        while logs:
            logs.pop().close()
        logs.append(FindingLog(path, HOUR_US, **options))
        return logs[-1]

    yield start
    for log in logs:
        log.close()


def record(log, *found, detection=BRUTE_FORCE, now_us=HOUR_US):
    return [one["finding_info"]["uid"] for one in log.record([(detection, each) for each in found], now_us)]


def test_a_finding_that_continues_is_recorded_once(open_log, path):
    log = open_log()
    assert len(record(log, finding(last_us=10))) == 1
    assert record(log, finding(last_us=20)) == []
    # The first events have left the window. The address identifies the finding, not the account.
    assert record(log, finding(first_us=15, last_us=HOUR_US, principal="User:b")) == []
    assert len(record(log, finding("10.0.0.2", 1, 2))) == 1
    assert len(record(open_log(), finding(first_us=2 * HOUR_US, last_us=3 * HOUR_US))) == 1
    assert len(path.read_text().splitlines()) == 3


def test_a_finding_that_appears_again_is_new(open_log):
    log = open_log()
    uids = record(log, finding(last_us=10))
    # A query over all events shows them as one finding.
    uids += record(log, finding(last_us=10 + HOUR_US + 1))
    uids += record(log, finding(first_us=9 * HOUR_US, last_us=9 * HOUR_US))
    assert len(set(uids)) == 3


class CrashError(Exception):
    """Raised where the process ends."""


class CrashingFiles(SpoolFiles):
    """File operations that end the process before the `left`th call that changes a file, or within it."""

    def __init__(self, left, torn):
        self.left, self.torn = left, torn

    def _count(self):
        self.left -= 1
        if self.left < 0:
            raise CrashError

    def write(self, descriptor, data):
        if self.left == 0:
            super().write(descriptor, data[: int(len(data) * self.torn)])
        self._count()
        return super().write(descriptor, data)

    def fsync(self, descriptor):
        self._count()

    def write_whole(self, path, data):
        self._count()
        super().write_whole(path, data)
        self._count()


def history(choose):
    """Yield the findings of a detection step by step: attacks begin, continue, leave the window and appear again."""
    attacks, steps = {}, []
    for now_us in range(0, 12 * HOUR_US, HOUR_US // 4):
        for address in "abc":
            if choose.random() < 0.3:
                attacks.setdefault(address, []).append(now_us + choose.randrange(HOUR_US // 8))
        window = {
            address: [time_us for time_us in times if time_us >= now_us - HOUR_US] for address, times in attacks.items()
        }
        steps.append([finding(address, min(times), max(times)) for address, times in window.items() if times])
    return steps


def episodes(path):
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [(*one["unmapped"]["key"], one["unmapped"]["first_us"]) for one in found]


@pytest.mark.parametrize("seed", range(40))
def test_a_process_that_is_killed_at_any_step_repeats_and_forgets_nothing(tmp_path, seed):
    choose = random.Random(seed)
    steps = history(choose)
    whole = FindingLog(tmp_path / "whole", HOUR_US)
    for now_us, found in enumerate(steps):
        record(whole, *found, now_us=now_us)
    whole.close()

    path, sent, crashes, at = tmp_path / "killed", [], 0, 0
    (tmp_path / "killed").touch()
    while at < len(steps):
        log = None
        try:
            log = FindingLog(path, HOUR_US, CrashingFiles(choose.randrange(1, 12), choose.random()))
            deliveries = Deliveries(log, [Collects(sent)], print)
            while at < len(steps):
                record(log, *steps[at], now_us=at)
                deliveries.run()
                at += 1
        except CrashError:
            crashes += 1
        if log is not None:
            log._close()
    assert crashes > 3
    assert episodes(path) == episodes(tmp_path / "whole")
    # After a crash an output may get a finding again, but it gets all findings in order.
    assert list(dict.fromkeys(sent)) == [json.loads(line)["metadata"]["uid"] for line in path.read_text().splitlines()]
    assert len(sent) <= len(set(sent)) + crashes


class Collects:
    name = "collected"

    def __init__(self, sent):
        self.sent = sent

    def send(self, uid, finding):
        self.sent.append(uid)


class Fails(Collects):
    name = "failing"

    def __init__(self, sent, *errors):
        super().__init__(sent)
        self.errors = list(errors)

    def send(self, uid, finding):
        if self.errors:
            raise self.errors.pop(0)
        super().send(uid, finding)


def test_an_output_that_fails_gets_all_findings_later_and_delays_no_other_output(open_log):
    good, bad, said, clock = [], [], [], [0.0]
    log = open_log()
    outputs = [Fails(bad, DeliveryError("no"), DeliveryError("still no")), Collects(good)]
    deliveries = Deliveries(log, outputs, said.append, lambda: clock[0])
    uids = record(log, finding(), finding("10.0.0.2"))
    assert not deliveries.run()
    assert (good, bad) == (uids, [])
    assert not deliveries.run()
    assert len(said) == 1
    assert "does not take findings, next try in 1 s: no" in said[0]
    clock[0] = 1.5
    assert not deliveries.run()
    assert "next try in 2 s: still no" in said[1]
    clock[0] = 4
    assert deliveries.run()
    assert bad == uids
    # Another process continues after this one. It does not send again what the output has got.
    log = open_log()
    deliveries = Deliveries(log, [Collects(good), Fails(bad)], said.append)
    more = record(log, finding("10.0.0.3"))
    assert deliveries.run()
    assert good == bad == uids + more


def test_a_finding_that_is_refused_does_not_stop_the_others(open_log):
    sent, said = [], []
    log = open_log()
    deliveries = Deliveries(log, [Fails(sent, RefusedError("HTTP status 400"))], said.append)
    uids = record(log, finding(), finding("10.0.0.2"))
    assert deliveries.run()
    assert sent == uids[1:]
    assert "refuses a finding" in said[0]


def test_a_new_output_gets_only_later_findings(open_log):
    sent = []
    log = open_log()
    record(log, finding())
    deliveries = Deliveries(log, [Collects(sent)], print)
    uids = record(log, finding("10.0.0.2"))
    assert deliveries.run()
    assert sent == uids


def test_only_one_process_can_write_findings(open_log, path):
    open_log()
    with pytest.raises(LakeError, match="another process writes the findings"):
        FindingLog(path, HOUR_US)


def test_a_new_file_is_created_after_rotation(open_log, path):
    log = FindingLog(path, HOUR_US)
    record(log, finding(), finding("10.0.0.2"))
    log.close()
    path.write_text("")
    sent, log = [], open_log()
    deliveries = Deliveries(log, [Collects(sent)], print)
    assert record(log, finding(last_us=5)) == []
    uids = record(log, finding("10.0.0.9"))
    deliveries.run()
    assert sent == uids


def test_the_state_is_small(open_log, path, monkeypatch):
    monkeypatch.setattr("klamm_spark.findings.log._MAX_KEYS", 10)
    log = open_log()
    record(log, *(finding(f"10.0.0.{n}") for n in range(50)))
    assert len(json.loads(path.with_name(path.name + STATE_SUFFIX).read_text())["keys"]) == 10


@pytest.fixture(scope="module")
def validator():
    schema = OcsfJsonSchemaEmbedded(get_ocsf_schema("1.8.0"))
    return jsonschema.Draft202012Validator(schema.get_class_schema("detection_finding"))


@pytest.mark.parametrize("name", DETECTIONS)
def test_a_finding_is_valid_ocsf(validator, name):
    for one in (finding(), finding(address="", principal="", object="", events=1 << 40, first_us=7, last_us=1 << 50)):
        rendered = detection_finding(DETECTIONS[name], one, 1_767_225_600_000_000)
        assert [error.message for error in validator.iter_errors(rendered)] == []
        assert (rendered["class_uid"], rendered["type_uid"]) == (2004, 200401)
        assert json.loads(json.dumps(rendered)) == rendered


@pytest.fixture
def server():
    """Yield a webhook: the statuses with which it answers, and the posted requests."""
    posted, statuses = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append((self.path, self.headers, json.loads(body)))
            self.send_response(statuses.pop(0) if statuses else 204)
            self.end_headers()

        def log_message(self, *_):
            pass

    http = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}/hook", statuses, posted
    http.shutdown()
    http.server_close()
    thread.join()


def test_webhook_delivery_is_retried(server, open_log):
    url, statuses, posted = server
    said, clock = [], count(step=100)
    log = open_log()
    webhook = Webhook(url, {"Authorization": "Bearer x"})
    deliveries = Deliveries(log, [webhook], said.append, lambda: float(next(clock)))
    uids = record(log, finding(), finding("10.0.0.2"), finding("10.0.0.3"))
    statuses += [503, 200, 422, 201]
    assert not deliveries.run()
    assert "HTTP status 503" in said[0]
    assert deliveries.run()
    assert [each[2]["metadata"]["uid"] for each in posted] == [uids[0], *uids]
    assert (posted[0][0], posted[0][1]["Authorization"]) == ("/hook", "Bearer x")
    assert posted[0][1]["Idempotency-Key"] == uids[0]
    with pytest.raises(DeliveryError):
        Webhook("http://127.0.0.1:9/", {}).send("u", b"{}")


HARM = "<!channel> & \x1b[31m\nred"


def rendered(**changes):
    return json.dumps(detection_finding(BRUTE_FORCE, finding(principal=HARM, **changes), HOUR_US)).encode()


def outputs(**settings):
    return outputs_of(DetectSettings(**settings))


def test_slack_gets_a_line_without_mentions(server):
    url, _, posted = server
    (webhook,) = outputs(webhook=url, webhook_format="slack")
    webhook.send("u", rendered())
    body = posted[0][2]
    assert body.keys() == {"text"}
    assert "high &lt;!channel&gt; &amp; \\x1b[31m\\nred 10.0.0.1 front x5 Brute force" in body["text"]


def test_pagerduty_gets_an_event_that_opens_one_incident(server):
    url, _, posted = server
    (webhook,) = outputs(webhook=url, webhook_format="pagerduty", pagerduty_routing_key="k" * 32)
    one = rendered(detail="x" * 2000)
    webhook.send("u", one)
    event = posted[0][2]
    assert (event["routing_key"], event["event_action"]) == ("k" * 32, "trigger")
    assert event["dedup_key"] == json.loads(one)["finding_info"]["uid"]
    payload = event["payload"]
    assert (payload["severity"], payload["source"], payload["class"]) == ("error", "klamm", "brute_force")
    assert len(payload["summary"]) == 1024
    assert payload["timestamp"] == "1970-01-01T00:00:00+00:00"
    assert payload["custom_details"] == json.loads(one)
    with pytest.raises(LakeError, match="needs pagerduty_routing_key"):
        outputs(webhook=url, webhook_format="pagerduty")


@pytest.fixture
def smtp():
    """Yield a mail server: its address, its answer to each mail, and the received mails."""
    came, answers = [], []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            self.say("220 here")
            while line := self.rfile.readline():
                word = line[:4].upper()
                if word == b"DATA":
                    self.say("354 go on")
                    lines = iter(self.rfile.readline, b".\r\n")
                    came.append(message_from_bytes(b"".join(lines), policy=policy.default))
                    self.say(answers.pop(0) if answers else "250 taken")
                else:
                    self.say("221 bye" if word == b"QUIT" else "250 good")

        def say(self, text):
            self.wfile.write(f"{text}\r\n".encode())

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}", answers, came
        server.shutdown()
        thread.join()


def test_finding_is_sent_as_a_mail(smtp, tmp_path):
    address, answers, came = smtp
    where = {"email_to": ("a@x", "b@x"), "email_from": "klamm@x"}
    (mail,) = outputs(smtp=address, **where)
    one = rendered()
    mail.send("u", one)
    message = came[0]
    uid = json.loads(one)["finding_info"]["uid"]
    assert (message["To"], message["From"], message["Message-ID"]) == ("a@x, b@x", "klamm@x", f"<{uid}@klamm>")
    assert message["Subject"] == "[high] Brute force: 5 failed logins"
    assert "\\x1b[31m\\nred" in message.get_content().partition("\n")[0]
    answers += ["451 later", "554 never"]
    with pytest.raises(DeliveryError):
        mail.send("u", one)
    with pytest.raises(RefusedError):
        mail.send("u", one)
    # A password is sent only over TLS.
    (tmp_path / "password").write_text("secret\n")
    (secret,) = outputs(smtp=address, smtp_user="u", smtp_password_file=tmp_path / "password", **where)
    with pytest.raises(DeliveryError, match="STARTTLS"):
        secret.send("u", one)
    with pytest.raises(DeliveryError):
        outputs(smtp="127.0.0.1:9", **where)[0].send("u", one)
    with pytest.raises(LakeError, match="email_to needs smtp"):
        outputs(**where)
    with pytest.raises(LakeError, match="smtp_password_file"):
        outputs(smtp=address, smtp_password_file=tmp_path / "none", **where)
