"""Tests of a witness: which checkpoints it cosigns, its other answers, and its state after a start."""

import asyncio
import random
import socket
import subprocess
import sys
import threading

import pytest

from klamm_spark.cli import main
from klamm_spark.errors import LakeError
from klamm_spark.tlog import witness as witness_module
from klamm_spark.tlog.merkle import EMPTY_ROOT, leaf_hash, root_of, tree_of
from klamm_spark.tlog.notes import LOG_KEY, WITNESS_KEY, Checkpoint, NoteSigner
from klamm_spark.tlog.submit import Answer, RefusedError, Submitter, UnavailableError, post, request_of
from klamm_spark.tlog.witness import CONNECTIONS, MAX_BODY_BYTES, Witness, WitnessServer, parse_request
from tests.unit.audit.logged_lake import NOW_S, ORIGIN, WITNESS, served, signer_in

LEAVES = [leaf_hash(bytes([number])) for number in range(40)]
FORKED = [*LEAVES[:5], *LEAVES[6:], LEAVES[5]]


@pytest.fixture
def log_signer(tmp_path):
    return NoteSigner(signer_in(tmp_path, "log"), ORIGIN, LOG_KEY)


def signer_of(tmp_path):
    return NoteSigner(signer_in(tmp_path, "key"), WITNESS, WITNESS_KEY)


@pytest.fixture
def start(tmp_path, log_signer):
    """Return a function that starts the witness, or restarts it."""
    running = []

    def start():
        for each in running:
            each.close()
        running[:] = [Witness(signer_of(tmp_path), tmp_path / "state", [log_signer.key], lambda: NOW_S)]
        return running[0]

    yield start
    for each in running:
        each.close()


def asked(log_signer, old, new, leaves=LEAVES, origin=ORIGIN):
    """Return a request with the correct proof for a tree of these leaves."""
    checkpoint = Checkpoint(origin, new, root_of(leaves[:new]))
    proof = tree_of(leaves).consistency(old, new) if old <= new else []
    return request_of(old, proof, checkpoint.signed(log_signer.line(checkpoint.text)))


def test_the_witness_cosigns_a_log_that_continues_its_last_cosigned_checkpoint(start, log_signer):
    witness = start()
    for old, new in ((0, 3), (3, 3), (3, 4), (4, 40), (40, 40)):
        response = witness.add_checkpoint(asked(log_signer, old, new))
        assert response.status == 200
        checkpoint = parse_request(asked(log_signer, old, new)).checkpoint
        assert checkpoint.signed(response.body).time_of(witness.key) == NOW_S


def test_a_rollback_and_a_fork_are_refused_also_after_a_start(start, log_signer):
    start().add_checkpoint(asked(log_signer, 0, 20))
    witness = start()
    for old, new in ((0, 10), (10, 10), (10, 30), (0, 20), (21, 30)):
        response = witness.add_checkpoint(asked(log_signer, old, new))
        assert (response.status, response.body, response.content_type) == (409, "20\n", "text/x.tlog.size")
    for new in range(21, 40):
        assert witness.add_checkpoint(asked(log_signer, 20, new, FORKED)).status == 422
    assert witness.add_checkpoint(asked(log_signer, 20, 20, FORKED)).status == 409
    assert witness.add_checkpoint(asked(log_signer, 20, 21)).status == 200


def test_malformed_and_unknown_requests_get_the_status_of_the_specification(start, log_signer, tmp_path):
    witness = start()
    right = asked(log_signer, 0, 5)
    unknown = NoteSigner(signer_in(tmp_path, "unknown"), ORIGIN, LOG_KEY)
    for body, status in (
        (b"", 400),
        (right.replace(b"old 0", b"old 00"), 400),
        (right.replace(b"old 0", b"old 6"), 400),
        (b"old 0\n" + b"x\n" * 3 + b"\n" + right.partition(b"\n\n")[2], 400),
        (right.replace(b"\n5\n", b"\n6\n"), 403),
        (asked(unknown, 0, 5), 403),
        (asked(log_signer, 0, 5, origin="example.com/other"), 404),
        (asked(log_signer, 1, 5), 409),
        (right.replace(b"old 0\n", b"old 0\n" + b"A" * 43 + b"=\n"), 422),
        (request_of(0, [], signed(log_signer, Checkpoint(ORIGIN, 0, LEAVES[0]))), 409),
    ):
        assert witness.add_checkpoint(body).status == status, body
    assert (
        witness.add_checkpoint(request_of(0, [], signed(log_signer, Checkpoint(ORIGIN, 0, EMPTY_ROOT)))).status == 200
    )
    assert witness.add_checkpoint(right).status == 200


def signed(log_signer, checkpoint):
    return checkpoint.signed(log_signer.line(checkpoint.text))


def test_no_request_that_is_changed_anywhere_is_cosigned(start, log_signer, seed):
    choose, witness = random.Random(seed), start()
    assert witness.add_checkpoint(asked(log_signer, 0, 20)).status == 200
    right = asked(log_signer, 20, 33)
    for _ in range(500):
        body = bytearray(right)
        for _ in range(choose.randrange(1, 3)):
            at = choose.randrange(len(body))
            body[at : at + choose.randrange(2)] = choose.choice([b"", bytes([choose.randrange(256)]), b"\n", b" "])
        if bytes(body) != right:
            assert witness.add_checkpoint(bytes(body)).status in (400, 403, 404, 409, 422), body
    assert witness.add_checkpoint(right).status == 200


def test_the_witness_does_not_start_without_its_last_checkpoint(start, log_signer, tmp_path):
    start().add_checkpoint(asked(log_signer, 0, 20))
    (path,) = (path for path in (tmp_path / "state").iterdir() if path.name != ".lock")
    whole = path.read_bytes()
    for damage in (b"", whole[:-10], whole.replace(b"\n20\n", b"\n19\n")):
        path.write_bytes(damage)
        with pytest.raises(LakeError, match="holds no usable cosigned checkpoint"):
            start()


def test_the_witness_answers_only_after_the_checkpoint_is_on_disk(start, log_signer, tmp_path, monkeypatch):
    witness = start()

    def fail(path, data):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(witness_module, "create_durably", fail)
        with pytest.raises(OSError, match="No space"):
            witness.add_checkpoint(asked(log_signer, 0, 20))
    # The witness has cosigned nothing.
    assert witness.add_checkpoint(asked(log_signer, 0, 5)).status == 200


def test_two_processes_cannot_be_one_witness(start, log_signer, tmp_path):
    start()
    with pytest.raises(LakeError, match="another process is the witness"):
        Witness(signer_of(tmp_path), tmp_path / "state", [log_signer.key], lambda: NOW_S)


# ---- over a socket


def is_closed(sock):
    try:
        return sock.recv(100) == b""
    except ConnectionResetError:
        return True


def connect(url):
    host, _, port = url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def test_a_log_gets_cosignatures_over_http(start, log_signer):
    witness = start()
    with served(witness) as url:
        submitter = Submitter(witness.key, f"{url}/")
        for size in (3, 20):
            checkpoint = parse_request(asked(log_signer, 0, size)).checkpoint
            assert checkpoint.signed(submitter.cosign(checkpoint, tree_of(LEAVES))).time_of(witness.key) == NOW_S
        # Another driver does not know which checkpoint the witness has cosigned.
        again = Submitter(witness.key, url)
        assert again.cosign(checkpoint, tree_of(LEAVES))
        fork = parse_request(asked(log_signer, 0, 30, FORKED)).checkpoint
        with pytest.raises(RefusedError, match="forked or rewritten"):
            again.cosign(fork, tree_of(FORKED))
        smaller = parse_request(asked(log_signer, 0, 7)).checkpoint
        with pytest.raises(RefusedError, match="rolled back"):
            again.cosign(smaller, tree_of(LEAVES))
        assert post(f"{url}/elsewhere", b"x").status == 404


def test_a_request_that_is_too_long_or_has_no_length_is_not_read(start, log_signer):
    with served(start()) as url:
        too_long = b"POST /add-checkpoint HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1)
        for head, status in (
            (too_long, b"413"),
            (b"POST /add-checkpoint HTTP/1.1\r\n\r\n", b"411"),
            (b"POST /add-checkpoint HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"411"),
            (b"POST /add-checkpoint HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", b"411"),
            (b"GET /add-checkpoint HTTP/1.1\r\n\r\n", b"405"),
            (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        ):
            with connect(url) as sock:
                sock.sendall(head)
                assert sock.makefile("rb").readline().split(b" ")[1] == status
        with connect(url) as sock:
            # The request's head does not end.
            sock.sendall(b"x" * 20_000)
            assert is_closed(sock)


def test_connections_with_half_requests_are_closed_to_make_room_for_logs(start, log_signer):
    witness = start()
    with served(witness, deadline_s=0.05) as url, connect(url) as sock:
        sock.sendall(b"POST /add-checkpoint HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf")
        assert is_closed(sock)
    with served(witness) as url:
        half = [connect(url) for _ in range(CONNECTIONS + 1)]
        for sock in half:
            sock.sendall(b"POST /add-checkpoint HTTP/1.1\r\n")
        assert post(f"{url}/add-checkpoint", asked(log_signer, 0, 3)).status == 200
        # The oldest connections were closed to make room.
        assert is_closed(half[0])
        for sock in half:
            sock.close()


@pytest.mark.parametrize(
    "answer",
    [
        Answer(500, b""),
        Answer(302, b""),
        Answer(200, b""),
        Answer(200, b"no line"),
        Answer(409, b"x\n"),
        Answer(409, b""),
    ],
)
def test_after_an_invalid_answer_the_witness_is_asked_again_later(log_signer, tmp_path, answer):
    key = NoteSigner(signer_in(tmp_path, "key"), WITNESS, WITNESS_KEY).key
    checkpoint = parse_request(asked(log_signer, 0, 3)).checkpoint
    with pytest.raises(UnavailableError):
        Submitter(key, "http://x", lambda url, body: answer).cosign(checkpoint, tree_of(LEAVES))


def test_a_cosignature_of_another_checkpoint_or_key_is_not_accepted(log_signer, tmp_path):
    own, other = (NoteSigner(signer_in(tmp_path, name), WITNESS, WITNESS_KEY) for name in ("key", "other"))
    checkpoint = parse_request(asked(log_signer, 0, 3)).checkpoint
    for line in (other.line(checkpoint.text, NOW_S), own.line("other text", NOW_S)):
        answer = Answer(200, line.encode())
        with pytest.raises(UnavailableError):
            Submitter(own.key, "http://x", lambda url, body, answer=answer: answer).cosign(checkpoint, tree_of(LEAVES))


def test_a_redirect_is_not_followed(start, monkeypatch):
    asked_for = []

    async def redirect(self, reader, writer):
        asked_for.append(await reader.readline())
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    monkeypatch.setattr(WitnessServer, "_serve", redirect)
    with served(start()) as url:
        assert post(f"{url}/add-checkpoint", b"x").status == 302
    assert asked_for == [b"POST /add-checkpoint HTTP/1.0\r\n"]


def test_the_wait_for_an_answer_of_single_bytes_ends_after_ten_seconds(start, monkeypatch):
    """The test moves a clock. The witness here never ends its answer."""
    ended = threading.Event()

    async def dribble(self, reader, writer):
        while not ended.is_set():
            writer.write(b"x")
            await asyncio.sleep(0)

    seconds = iter([0.0, 5.0, 9.0, 11.0])
    monkeypatch.setattr(WitnessServer, "_serve", dribble)
    with served(start()) as url:
        try:
            with pytest.raises(UnavailableError, match="in ten seconds"):
                post(f"{url}/add-checkpoint", b"x", monotonic_s=lambda: next(seconds))
        finally:
            ended.set()


def test_the_witness_command_runs_until_a_signal(log_signer, tmp_path):
    signer = signer_of(tmp_path)
    arguments = ("--key", tmp_path / "key", "--name", WITNESS, "--folder", tmp_path / "state", "--log", log_signer.key)
    command = [sys.executable, "-m", "klamm", "audit", "witness", *map(str, arguments), "--bind", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            said = process.stderr.readline()
            assert said.startswith(f"the witness {signer.key} listens on 127.0.0.1:"), said
            submitter = Submitter.of(f"{signer.key} http://127.0.0.1:{said.rpartition(':')[2].strip()}")
            checkpoint = parse_request(asked(log_signer, 0, 3)).checkpoint
            assert checkpoint.signed(submitter.cosign(checkpoint, tree_of(LEAVES))).time_of(signer.key) > NOW_S - 10**9
            fork = parse_request(asked(log_signer, 0, 30, FORKED[3:])).checkpoint
            with pytest.raises(RefusedError):
                submitter.cosign(fork, tree_of(FORKED[3:]))
            process.terminate()
            rest = process.stderr.read()
            assert process.wait(60) == 143
            assert "127.0.0.1: 422: example.com/lake is forked, or its proof is wrong" in rest
            assert "Traceback" not in rest
        finally:
            process.kill()


def test_a_command_line_that_names_no_key_or_log_is_a_usage_error(log_signer, tmp_path, capsys):
    given = ["witness", "--name", WITNESS, "--folder", str(tmp_path / "state"), "--log", str(log_signer.key)]
    assert main([*given, "--key", str(tmp_path / "missing")]) == 2
    assert "missing: No such file" in capsys.readouterr().err
    for bad in (["--log", "x"], ["--name", "a b"], ["--bind", "x"]):
        with pytest.raises(SystemExit) as ended:
            main([*given, "--key", str(tmp_path / "missing"), *bad])
        assert ended.value.code == 2
