"""`klamm` called in this process."""

import pytest

from klamm.cli.main import main


@pytest.fixture
def klamm(capsys, tmp_path, monkeypatch):
    """`klamm("check", "x.toml")` → (exit code, lines of stdout, lines of stderr); the working folder is a fresh one."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        try:
            code = main(arguments)
        except SystemExit as exit_:
            code = exit_.code
        captured = capsys.readouterr()
        return code, captured.out.splitlines(), captured.err.splitlines()

    return call
