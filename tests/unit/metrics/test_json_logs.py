"""Tests of log lines in JSON: one object a line, whatever a client sends, with fields that only the code names."""

import contextlib
import json
import logging
import sys
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from klamm.logs.escaping import LogFields
from klamm.logs.json_lines import JsonFormatter
from klamm.logs.output import log_file_descriptors, log_formatter, start_logging


def record_of(message, *arguments, **more):
    return logging.LogRecord("klamm.test", logging.WARNING, __file__, 1, message, arguments, more.get("exc_info"))


def line_of(message, *arguments, **more):
    return json.loads(JsonFormatter().format(record_of(message, *arguments, **more)))


def test_a_record_has_time_level_logger_and_message():
    line = line_of("100%% of %d", 3)
    moment = datetime.fromisoformat(line.pop("time"))
    assert moment.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - moment) < timedelta(hours=1)
    assert line == {"level": "WARNING", "logger": "klamm.test", "message": "100% of 3"}


def test_fields_have_the_names_of_the_audit():
    line = line_of("slow: listener=%s principal=%s api=%s total_ms=%.1f version=%d: %s", "a", None, "Fetch", 1.26, 3, 4)
    fields = {name: line[name] for name in line if name not in ("time", "level", "logger", "message")}
    assert fields == {
        "listener": "a",
        "principal": None,
        "api_name": "Fetch",
        "total_time_ms": 1.26,
        "api_version": 3,
    }


def test_fields_of_a_channel_are_fields_of_the_record():
    line = line_of("%s: closed: %s", LogFields(listener="a", principal="User:b listener=c"), "idle")
    assert line["message"] == "listener=a principal=User:b listener=c: closed: idle"
    assert (line["listener"], line["principal"]) == ("a", "User:b listener=c")


def test_no_field_replaces_one_that_every_record_has():
    line = line_of("level=%s message=%s", "INFO", "forged")
    assert (line["level"], line["message"]) == ("WARNING", "level=INFO message=forged")


def test_numbers_outside_json_are_written_as_texts():
    assert line_of("turn=%s", float("nan"))["turn"] == "nan"


@given(st.text(), st.text())
def test_every_record_is_one_line_and_clients_cannot_add_fields(client_id, text):
    written = JsonFormatter().format(record_of("client_id=%s: %s", client_id, f'","level":"x" listener=a {text}'))
    assert written.isascii()
    assert written.isprintable()
    line = json.loads(written)
    assert set(line) == {"time", "level", "logger", "message", "client_id"}
    assert line["client_id"] == client_id


def test_a_traceback_is_a_field():
    try:
        raise ValueError("a\nb")
    except ValueError:
        line = line_of("failed", exc_info=sys.exc_info())
    assert line["exception"].startswith("Traceback (most recent call last):\n")
    assert line["exception"].endswith("ValueError: a\nb")


def test_a_worker_is_a_field():
    assert json.loads(log_formatter("json", 2).format(record_of("a")))["worker"] == 2
    assert log_formatter("text", 2).format(record_of("a")).endswith("klamm.test a worker=2")


@contextlib.contextmanager
def logging_to(path, log_format):
    """Return the root logger after `start_logging`. Its earlier state returns at the end."""
    logger = logging.getLogger()
    # pytest's own handlers are installed while a test runs.
    before, level = logger.handlers[:], logger.level
    logger.handlers[:] = []
    try:
        start_logging(log_format, path, {"root": "INFO"})
        yield logger
    finally:
        for handler in logger.handlers:
            handler.close()
        logger.handlers[:] = before
        logger.setLevel(level)


def test_a_log_file_may_be_moved_away(tmp_path, capsys):
    path = tmp_path / "klamm.log"
    with logging_to(path, "json") as log:
        assert len(log_file_descriptors()) == 1
        log.info("before")
        path.rename(tmp_path / "klamm.log.1")
        log.info("after")
    assert [json.loads(line)["message"] for line in path.read_text().splitlines()] == ["after"]
    assert '"before"' in (tmp_path / "klamm.log.1").read_text()
    assert capsys.readouterr().err == ""


def test_lines_that_cannot_be_written_to_the_file_go_to_standard_error(tmp_path, capsys):
    folder = tmp_path / "logs"
    folder.mkdir()
    with logging_to(folder / "klamm.log", "text") as log:
        (folder / "klamm.log").unlink()
        folder.rmdir()
        log.info("to standard error")
        assert capsys.readouterr().err.endswith("root to standard error\n")
        folder.mkdir()
        log.info("to the file")
    assert (folder / "klamm.log").read_text().endswith("root to the file\n")
