"""Tests of credential stores: their users, and files that change or are invalid."""

import logging

import pytest

from klamm import Address, ListenerContext, ServerServices
from klamm.sasl import SCRAM_CREDENTIALS, ScramCredential, ScramMechanism
from klamm.testing import ManualClock
from klamm_sasl.sasl_settings import CallableStoreSettings, FileStoreSettings
from klamm_sasl.stores.broker import BrokerStore
from klamm_sasl.stores.file import FileStore
from klamm_sasl.stores.function import CallableStore
from klamm_sasl.stores.user_table import InlineStore
from klamm_sasl.stores.users_file import parse_users
from tests.unit.sasl.users import credential

SHA_256, SHA_512 = ScramMechanism
SESAME = credential("sesame")


@pytest.fixture
def listener():
    services = ServerServices(ManualClock())
    return ListenerContext("stores", Address("127.0.0.1", 1), Address("127.0.0.1", 1), services=services)


def line(user, password="sesame", mechanism=SHA_256):  # noqa: S107
    return f"{user}:{credential(password, mechanism).to_text()}\n"


def knows(store, user, password="sesame", mechanism=SHA_256):  # noqa: S107
    found = store.scram_credential(user, mechanism)
    return found is not None and found.verifies(password)


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "users"
    file.write_text("# people\n\n" + line("alice") + line("alice", mechanism=SHA_512) + line("bob"))
    return file


@pytest.fixture
def store(file, listener):
    store = FileStore(FileStoreSettings(file, 1000))
    store.open(listener)
    yield store
    store.close()


def pass_time(listener, ms=1000):
    listener.services.clock.advance_ms(ms)
    listener.services.scheduler.run_due()


def failures(listener):
    return {
        family.name: family.samples[0].value
        for family in listener.services.metrics.collect()
        if "failures" in family.name
    }


def test_a_file_is_read(store):
    assert knows(store, "alice")
    assert knows(store, "alice", mechanism=SHA_512)
    assert not knows(store, "bob", mechanism=SHA_512)
    assert store.scram_credential("carol", SHA_256) is None
    assert {store.any_credential(SHA_256, draw) for draw in range(9)} == {SESAME}
    assert store.any_credential(SHA_512, 5) == credential("sesame", SHA_512)


def test_a_changed_file_is_read_again(store, file, listener, caplog):
    caplog.set_level(logging.INFO)
    file.write_text(line("carol"))
    assert not knows(store, "carol")
    pass_time(listener)
    assert knows(store, "carol")
    assert not knows(store, "alice")
    assert "1 users" in caplog.text
    assert "SCRAM-SHA" not in caplog.text


@pytest.mark.parametrize(
    "text", ["alice\n", "alice:secret\n", ":SCRAM", "\xff", "alice:SCRAM-SHA-256$1:AA==$AA==:AA==\n"]
)
def test_invalid_new_content_is_reported_once_and_the_old_one_stays_in_use(store, file, listener, caplog, text):
    file.write_text(line("dora") + text, encoding="latin-1")
    for _ in range(3):
        pass_time(listener)
    assert knows(store, "alice")
    assert not knows(store, "dora")
    assert list(failures(listener).values()) == [1]
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1
    assert "secret" not in caplog.text
    file.write_text(line("dora"))
    pass_time(listener)
    assert knows(store, "dora")


def errors(caplog):
    return len([record for record in caplog.records if record.levelno == logging.ERROR])


def test_a_missing_file_keeps_the_users_and_is_reported_once(store, file, listener, caplog):
    text = file.read_text()
    for times in (1, 2):
        file.unlink()
        for _ in range(3):
            pass_time(listener)
        assert knows(store, "alice")
        assert list(failures(listener).values()) == [times]
        assert errors(caplog) == times
        # The file is restored, so that it can be removed again.
        file.write_text(text)
        pass_time(listener)


def test_each_separate_failure_is_reported(store, file, listener, caplog):
    for times, text in enumerate(("garbage", "more garbage", "garbage"), 1):
        file.write_text(text)
        pass_time(listener)
        assert list(failures(listener).values()) == [times]
        assert errors(caplog) == times


def test_a_failed_reload_raises_and_keeps_the_users(store, file):
    file.write_text("garbage")
    with pytest.raises(ValueError, match="line 1: is not USER:VERIFIER"):
        store.reload()
    assert knows(store, "alice")


def test_a_problem_that_a_reload_finds_is_counted_once(store, file, listener, caplog):
    file.write_text("garbage")
    for _ in range(2):
        with pytest.raises(ValueError, match="line 1: is not USER:VERIFIER"):
            store.reload()
        pass_time(listener)
    assert list(failures(listener).values()) == [1]
    assert errors(caplog) == 0, "the caller gets the exception"
    file.unlink()
    for _ in range(2):
        with pytest.raises(OSError, match="No such file"):
            store.reload()
    assert list(failures(listener).values()) == [2]


def test_the_store_does_not_open_with_an_invalid_file(tmp_path, listener):
    with pytest.raises(OSError, match="nowhere"):
        FileStore(FileStoreSettings(tmp_path / "nowhere")).open(listener)
    (tmp_path / "wrong").write_text("\n" + line("alice") + "bob:clear text")
    with pytest.raises(ValueError, match='line 3: the verifier of user "bob" is not a SCRAM verifier') as error:
        FileStore(FileStoreSettings(tmp_path / "wrong")).open(listener)
    assert "clear text" not in str(error.value)


def test_a_closed_store_does_not_check_its_file(file, listener, caplog):
    store = FileStore(FileStoreSettings(file, 1000))
    store.open(listener)
    store.close()
    file.unlink()
    pass_time(listener)
    assert not caplog.records


def test_text_of_a_users_file_is_parsed(file):
    assert [(user, one.mechanism) for user, one in parse_users(file.read_text())] == [
        ("alice", SHA_256),
        ("alice", SHA_512),
        ("bob", SHA_256),
    ]


def test_broker_store_reads_the_table_of_the_broker(listener):
    table = listener.services.shared.table(SCRAM_CREDENTIALS)
    store = BrokerStore()
    store.open(listener)
    assert store.scram_credential("alice", SHA_256) is None
    assert store.any_credential(SHA_256, 3) is None
    table.update({SHA_256.row_key("a:b"): SESAME.to_row()})
    assert knows(store, "a:b")
    assert store.scram_credential("a:b", SHA_512) is None
    assert store.any_credential(SHA_256, 3) == SESAME
    assert store.any_credential(SHA_512, 3) is None
    table.update({SHA_256.row_key("a:b"): None})
    assert store.scram_credential("a:b", SHA_256) is None
    assert store.any_credential(SHA_256, 3) is None


def test_a_row_of_the_broker_is_decoded_once(listener, monkeypatch, caplog):
    decoded = []
    real = ScramCredential.from_row
    monkeypatch.setattr(ScramCredential, "from_row", lambda row: decoded.append(row) or real(row))
    table = listener.services.shared.table(SCRAM_CREDENTIALS)
    table.update({SHA_256.row_key("alice"): SESAME.to_row(), SHA_512.row_key("alice"): {"mechanism": "none"}})
    store = BrokerStore()
    store.open(listener)
    for _ in range(3):
        assert knows(store, "alice")
    assert store.scram_credential("alice", SHA_512) is None
    assert "the stored credential 'SCRAM-SHA-512:alice' cannot be used" in caplog.text
    table.update({SHA_256.row_key("bob"): SESAME.to_row(), SHA_512.row_key("alice"): None})
    assert knows(store, "bob")
    assert store.plain_credentials() == {"alice": SESAME, "bob": SESAME}
    assert len(decoded) == 3
    changed = credential("changed")
    table.update({SHA_256.row_key("alice"): changed.to_row()})
    assert store.scram_credential("alice", SHA_256) == changed


def test_inline_store_knows_users_of_the_configuration():
    both = f"{SESAME.to_text()} {credential('sesame', SHA_512).to_text()}"
    store = InlineStore({"alice": both})
    assert knows(store, "alice")
    assert knows(store, "alice", mechanism=SHA_512)
    assert store.scram_credential("bob", SHA_256) is None


def check_password(user, password):
    return {"alice": password == "sesame", "odd": "yes"}.get(user)


def verifier(user, mechanism):
    return credential("sesame", ScramMechanism.named(mechanism)).to_text() if user == "alice" else None


def garbage(user, mechanism):
    return "clear text"


def number(user, mechanism):
    return 7


def calling(listener, **functions):
    functions = {key: f"{__name__}:{name}" for key, name in functions.items()}
    store = CallableStore(CallableStoreSettings(**functions))
    store.open(listener)
    return store


def test_a_store_can_ask_functions(listener):
    store = calling(listener, password="check_password", verifier="verifier")  # noqa: S106
    assert store.blocking
    assert store.verify_password("alice", "sesame") is True
    assert store.verify_password("alice", "wrong") is False
    assert store.verify_password("bob", "sesame") is None
    assert knows(store, "alice")
    assert knows(store, "alice", mechanism=SHA_512)
    assert store.scram_credential("bob", SHA_256) is None


def test_a_function_that_returns_a_wrong_type_refuses_the_client_and_is_logged(listener):
    with pytest.raises(TypeError, match=r":check_password returned a \w+; it may return True, False or None"):
        calling(listener, password="check_password").verify_password("odd", "x")  # noqa: S106
    with pytest.raises(TypeError, match=":number returned a int; it may return a str or None"):
        calling(listener, verifier="number").scram_credential("alice", SHA_256)


def test_each_function_is_optional(listener):
    assert calling(listener, verifier="verifier").verify_password("alice", "sesame") is None
    assert calling(listener, password="check_password").scram_credential("alice", SHA_256) is None  # noqa: S106
    with pytest.raises(ValueError, match="needs password or verifier"):
        calling(listener)
    with pytest.raises(AttributeError):
        calling(listener, verifier="not_there")


def test_a_function_must_return_a_verifier(listener):
    with pytest.raises(ValueError) as error:
        calling(listener, verifier="garbage").scram_credential("alice", SHA_256)
    assert "clear text" not in str(error.value)
