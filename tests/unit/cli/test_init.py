"""Tests of `klamm init`: its files are valid, and it overwrites no file."""

import errno
import os
from itertools import combinations
from pathlib import Path

import pytest

from klamm.cli.init import STARTER

INIT_OPTIONS = ("--tls", "--scram", "--gateway")


def test_init_on_a_full_disk_leaves_no_half_file(klamm, monkeypatch):
    def on_a_full_disk(path, *arguments, **options):
        file = opened(path, *arguments, **options)
        file.write = full
        return file

    def full(text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    opened = Path.open
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", on_a_full_disk)
        assert klamm("init") == (2, [], ["klamm: klamm.toml cannot be written: No space left on device"])
    assert klamm("init")[0] == 0


def test_init_writes_a_valid_file_and_never_overwrites_one(klamm):
    assert klamm("init") == (0, ["klamm.toml written; next: klamm serve klamm.toml"], [])
    assert klamm("check", "klamm.toml") == (0, ["klamm.toml: ok (internal)"], [])
    Path("mine.toml").write_text("# mine\n")
    code, out, err = klamm("init", "mine.toml")
    assert (code, out, err) == (2, [], ["klamm: mine.toml exists; it was not changed"])
    assert Path("mine.toml").read_text() == "# mine\n"
    code, _, err = klamm("init", "no/such/folder.toml")
    assert (code, err) == (2, ["klamm: no/such/folder.toml cannot be written: No such file or directory"])


@pytest.mark.parametrize("chosen", [one for count in (1, 2, 3) for one in combinations(INIT_OPTIONS, count)])
def test_init_with_options_writes_a_file_that_is_valid_after_its_commands_have_run(klamm, chosen):
    Path("password").write_text("secret\n")
    Path("conf").mkdir()
    code, (line,), _ = klamm("init", "conf/klamm.toml", *chosen)
    *commands, serve = line.partition("; next: ")[2].split("; ")
    assert (code, serve) == (0, "klamm serve conf/klamm.toml")
    for command in commands:
        assert f"#   {command}" in Path("conf/klamm.toml").read_text().splitlines()
        _klamm, *arguments = command.split()
        more = ["--password-file", "password"] if arguments[0] == "users" else []
        assert klamm(*arguments, *more)[0] == 0
    assert klamm("check", "conf/klamm.toml") == (0, ["conf/klamm.toml: ok (front)"], [])


def test_the_commented_lines_of_the_starter_file_are_valid(klamm):
    lines = STARTER.splitlines()
    first = lines.index("# [listeners.public]")
    end = next(number for number in range(first, len(lines)) if not lines[number].startswith("#"))
    lines[first:end] = [line.removeprefix("# ").removeprefix("#") for line in lines[first:end]]
    Path("all.toml").write_text("\n".join(lines))
    assert klamm("check", "all.toml") == (0, ["all.toml: ok (internal, public)"], [])
