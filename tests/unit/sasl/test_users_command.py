"""Tests of `klamm users`: a file of verifiers, and passwords that never come from arguments."""

import dataclasses
import fcntl
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from klamm.cli.main import main
from klamm.runtime import PLATFORM, files
from klamm.sasl import ScramCredential
from klamm_sasl.stores.users_file import parse_users
from tests.waiting import wait_until


@pytest.fixture
def type_in(monkeypatch):
    """Return `type_in(text)`, which sets the content of standard input."""

    def say(text):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))

    say("")
    return say


@pytest.fixture
def file(tmp_path):
    return tmp_path / "users"


def users(file):
    return {(user, one.mechanism.mechanism_name): one for user, one in parse_users(file.read_text())}


def test_users_are_added_listed_and_removed(file, type_in, capsys):
    type_in("sesame\n")
    assert main(["users", "add", str(file), "alice"]) == 0
    type_in("other\n")
    assert main(["users", "add", str(file), "bob", "--mechanism", "SCRAM-SHA-512", "--iterations", "8192"]) == 0
    assert users(file)["alice", "SCRAM-SHA-256"].verifies("sesame")
    assert users(file)["alice", "SCRAM-SHA-512"].verifies("sesame")
    assert users(file)["bob", "SCRAM-SHA-512"].verifies("other")
    assert "sesame" not in file.read_text()
    assert main(["users", "list", str(file)]) == 0
    assert capsys.readouterr().out == ("alice SCRAM-SHA-256(4096) SCRAM-SHA-512(4096)\nbob SCRAM-SHA-512(8192)\n")
    assert main(["users", "remove", str(file), "alice", "--mechanism", "SCRAM-SHA-256"]) == 0
    assert set(users(file)) == {("alice", "SCRAM-SHA-512"), ("bob", "SCRAM-SHA-512")}
    assert main(["users", "remove", str(file), "alice"]) == 0
    assert set(users(file)) == {("bob", "SCRAM-SHA-512")}


def test_a_password_is_changed(file, type_in):
    for password in ("first", "second"):
        type_in(password)
        main(["users", "add", str(file), "alice"])
    assert len(users(file)) == 2
    assert all(one.verifies("second") for one in users(file).values())


def test_each_user_has_a_salt_of_its_own(file, type_in):
    for user in ("alice", "bob"):
        type_in("same")
        main(["users", "add", str(file), user])
    assert len({one.salt for one in users(file).values()}) == 4


def test_only_the_owner_can_read_the_file_unless_its_mode_was_wider(file, type_in):
    type_in("x")
    main(["users", "add", str(file), "alice"])
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    type_in("x")
    main(["users", "add", str(file), "bob"])
    assert file.stat().st_mode & 0o777 == 0o640
    assert list(file.parent.iterdir()) == [file], "nothing is left beside it"


def test_password_is_read_from_a_file(file, tmp_path):
    (tmp_path / "password").write_text("sesame\nnot this\n")
    assert main(["users", "add", str(file), "alice", "--password-file", str(tmp_path / "password")]) == 0
    assert users(file)["alice", "SCRAM-SHA-256"].verifies("sesame")


def test_a_password_from_the_terminal_is_typed_twice(file, monkeypatch, capsys):
    answers = iter(["sesame", "sesame", "one", "other"])
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(answers))
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", terminal)
    assert main(["users", "add", str(file), "alice"]) == 0
    assert users(file)["alice", "SCRAM-SHA-256"].verifies("sesame")
    assert main(["users", "add", str(file), "bob"]) == 2
    assert "differ" in capsys.readouterr().err
    assert ("bob", "SCRAM-SHA-256") not in users(file)


def test_hash_prints_a_verifier_for_a_configuration(type_in, capsys):
    type_in("sesame")
    assert main(["users", "hash"]) == 0
    words = capsys.readouterr().out.split()
    assert [ScramCredential.from_text(word).verifies("sesame") for word in words] == [True, True]


@pytest.mark.parametrize(
    ("arguments", "typed", "complaint"),
    [
        (["add", "FILE", "alice"], "\n", "the password is empty"),
        (["add", "FILE", "a:b"], "x", "must not contain a colon"),
        (["add", "FILE", "#a"], "x", "begin with #"),
        (["add", "FILE", " a"], "x", "spaces at its ends"),
        (["add", "FILE", "alice", "--iterations", "4095"], "x", "between 4096"),
        (["remove", "FILE", "nobody"], "", "there is no user"),
        (["list", "NOWHERE"], "", "NOWHERE: No such file or directory\n"),
        (["add", "BROKEN", "alice"], "x", "line 1: is not USER:VERIFIER"),
    ],
)
def test_wrong_input_is_reported(tmp_path, type_in, capsys, arguments, typed, complaint):
    (tmp_path / "FILE").write_text("")
    (tmp_path / "BROKEN").write_text("secret")
    type_in(typed)
    paths = {name: str(tmp_path / name) for name in ("FILE", "NOWHERE", "BROKEN")}
    assert main(["users", *(paths.get(argument, argument) for argument in arguments)]) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert "secret" not in said


def test_a_password_cannot_be_given_as_an_argument(file):
    for argument in ("--password", "--password=x", "-p"):
        with pytest.raises(SystemExit):
            main(["users", "add", str(file), "alice", argument, "x"])


def test_a_removed_user_does_not_return_after_a_power_cut(file, type_in, monkeypatch):
    """The folder is synced after the rename."""
    type_in("sesame\n")
    assert main(["users", "add", str(file), "alice"]) == 0
    calls = []
    recording = dataclasses.replace(
        PLATFORM,
        replace=lambda *given: (os.replace(*given), calls.append("replace")),
        sync=lambda descriptor: (
            os.fsync(descriptor),
            calls.append(os.path.isdir(f"/proc/self/fd/{descriptor}")),
        ),
    )
    monkeypatch.setattr(files, "PLATFORM", recording)
    assert main(["users", "remove", str(file), "alice"]) == 0
    assert calls == [False, "replace", True]


def test_a_command_waits_for_one_that_changes_the_file(file, tmp_path, type_in):
    type_in("sesame\n")
    main(["users", "add", str(file), "alice"])
    (tmp_path / "password").write_text("other\n", encoding="utf-8")
    folder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    command = [sys.executable, "-m", "klamm", "users", "add", str(file), "bob"]
    with subprocess.Popen([*command, "--password-file", str(tmp_path / "password")]) as adds:
        wait_until(lambda: is_waited_for(folder), "the command does not wait", within_s=60)
        # This is the content that the first command writes while the second one waits.
        alice = file.read_text(encoding="utf-8")
        file.write_text(alice.replace("alice:", "carol:"), encoding="utf-8")
        os.close(folder)
        assert adds.wait(60) == 0
    assert {user for user, _ in users(file)} == {"carol", "bob"}


def is_waited_for(descriptor):
    """Return True if a process waits for a lock of the descriptor's file, as Linux lists them."""
    inode = os.fstat(descriptor).st_ino
    lines = [line.split() for line in Path("/proc/locks").read_text(encoding="utf-8").splitlines()]
    return any(words[1] == "->" and words[6].endswith(f":{inode}") for words in lines)


def test_simultaneous_commands_lose_no_change(file, tmp_path):
    (tmp_path / "password").write_text("sesame\n", encoding="utf-8")
    command = [sys.executable, "-m", "klamm", "users", "add", str(file)]
    names = [f"user-{number}" for number in range(6)]
    running = [subprocess.Popen([*command, name, "--password-file", str(tmp_path / "password")]) for name in names]
    assert [one.wait(120) for one in running] == [0] * len(names)
    assert {user for user, _ in users(file)} == set(names)
