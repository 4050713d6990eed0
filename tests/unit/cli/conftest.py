"""Runs `klamm` in this process."""

import pytest

from klamm.cli.main import main


@pytest.fixture
def klamm(capsys, tmp_path, monkeypatch):
    """Return `klamm("check", "x.toml")`, which returns (exit code, lines of stdout, lines of stderr).

    The working folder is a new one.
    """
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        try:
            code = main(arguments)
        except SystemExit as exit_:
            code = exit_.code
        captured = capsys.readouterr()
        return code, captured.out.splitlines(), captured.err.splitlines()

    return call
