"""Transports, authenticators and SASL mechanisms that each break one rule of their conformance suite.

`test_conformance_finds.py` checks that the suite finds each of them. Each table maps the name of a
rule to a part that breaks it.
"""

import socket
import threading

from klamm import AuthenticationStep, Authenticator, AuthenticatorFactory, Interest, KafkaPrincipal
from klamm.sasl import (
    CredentialStore,
    SaslChallenge,
    SaslError,
    SaslMechanism,
    SaslServer,
    SaslSuccess,
    ScramCredential,
    ScramMechanism,
)
from klamm.testing import Playbook
from klamm_plaintext.transport import PlaintextTransport, PlaintextTransportLayer

ALICE = KafkaPrincipal("alice")


def block(*_):
    threading.Event().wait(1.5)


def changed(base, **members):
    """Return a subclass with other members. A replaced method can reach the original with `super(type(self), self)`."""
    return type(f"Broken{base.__name__}", (base,), members)


def one_thread(name):
    """Return a method that fails on every thread but the one that made the part."""

    def method(self, *arguments, **named):
        if threading.current_thread().name == "conformance" and threading.active_count() > 3:
            raise RuntimeError("another thread")
        return getattr(super(type(self), self), name)(*arguments, **named)

    return method


# ---- authenticators


class Naming(AuthenticatorFactory):
    """A factory of authenticators whose first frame is `login NAME`."""

    authenticator_class = None

    def authenticator(self, connection, transport):
        return (self.authenticator_class or Name)()


class Name(Authenticator):
    name = None

    @property
    def complete(self):
        return self.name is not None

    @property
    def principal(self):
        return KafkaPrincipal(self.name)

    def receive(self, frame):
        word, _, name = bytes(frame).partition(b" ")
        if word != b"login" or name not in (b"alice", b"bob"):
            return AuthenticationStep(failed="unknown")
        self.name = name.decode()
        return AuthenticationStep([b"welcome"], complete=True)


def named(**members):
    return changed(Naming, authenticator_class=changed(Name, **members))


def let_in(self, frame):
    self.name = "alice"
    return AuthenticationStep(complete=True)


def let_in_if_long(self, frame):
    return let_in(self, frame) if len(frame) > 50_000 else Name.receive(self, frame)


def let_in_shorter(self, frame):
    return let_in(self, frame) if bytes(frame)[:7] == b"login a" else Name.receive(self, frame)


class Common(Name):
    def receive(self, frame):
        step = super().receive(frame)
        Common.name = self.name if self.name == "bob" else None
        return step


def only_bytes(self, frame):
    return Name.receive(self, frame) if isinstance(frame, bytes) else AuthenticationStep(failed="what is that?")


SAME_NAME = Name()
AUTHENTICATOR = {
    "is_made_for_each_connection": changed(Naming, authenticator=lambda self, connection, transport: SAME_NAME),
    "describes_its_limits": changed(Naming, security_protocol="SASL"),
    "lets_clients_in_that_prove_who_they_are": named(receive=lambda self, frame: AuthenticationStep(failed="no")),
    "lets_no_client_in_that_does_not": named(receive=let_in_shorter),
    "survives_garbage": named(receive=let_in_if_long),
    "takes_no_part_for_the_whole": named(receive=let_in_shorter),
    "keeps_connections_apart": changed(Naming, authenticator_class=Common),
    "takes_any_buffer": named(receive=only_bytes),
    "says_when_sessions_end": named(session_expires_ns="tomorrow"),
    "closes_at_any_time": named(close=lambda self: 1 / 0),
}

# ---- SASL


class Ticket(SaslMechanism):
    server_class = None

    def server(self, connection, transport):
        return (self.server_class or TicketServer)()


class TicketServer(SaslServer):
    def evaluate(self, token):
        if token == b"hello":
            return SaslChallenge(b"who?")
        if token != b"alice's ticket":
            raise SaslError("no such ticket")
        return SaslSuccess(ALICE)


def serving(evaluate, **members):
    return changed(Ticket, server_class=changed(TicketServer, evaluate=evaluate, **members))


def starts_with(self, token):
    return SaslSuccess(ALICE) if token.startswith(b"alice") else TicketServer.evaluate(self, token)


def raise_other(self, token):
    return TicketServer.evaluate(self, token) if token.isascii() else 1 / 0


def without_principal(self, token):
    found = TicketServer.evaluate(self, token)
    return SaslSuccess(ALICE, expires_ms="soon") if isinstance(found, SaslSuccess) else found


def bob(self, token):
    found = TicketServer.evaluate(self, token)
    return SaslSuccess(KafkaPrincipal("bob")) if isinstance(found, SaslSuccess) else found


SAME_SERVER = TicketServer()
MECHANISM = {
    "lets_users_in_that_prove_who_they_are": serving(bob),
    "lets_no_user_in_that_does_not": serving(
        lambda self, token: SaslSuccess(ALICE) if b"ticket" in token else TicketServer.evaluate(self, token)
    ),
    "fails_on_garbage_with_sasl_error": serving(raise_other),
    "takes_no_part_for_the_whole": serving(starts_with),
    "keeps_exchanges_apart": changed(Ticket, server=lambda self, connection, transport: SAME_SERVER),
    "describes_success": serving(without_principal),
    "closes_at_any_time": serving(TicketServer.evaluate, claimed="", close=lambda self: 1 / 0),
}
KNOWN = ScramCredential.from_password(ScramMechanism.SCRAM_SHA_256, "secret", b"0123456789abcdef")


class Store(CredentialStore):
    def scram_credential(self, user, mechanism):
        return KNOWN if (user, mechanism) == ("alice", KNOWN.mechanism) else None


def at_random(self, user, mechanism):
    other = ScramCredential.from_password(KNOWN.mechanism, "secret", threading.current_thread().name.encode() * 2)
    self.flip = not getattr(self, "flip", False)
    return (KNOWN if self.flip else other) if user == "alice" and mechanism is KNOWN.mechanism else None


STORE = {
    "knows_its_users": changed(Store, verify_password=lambda self, user, password: True if user == "alice" else None),
    "knows_no_other_user": changed(Store, scram_credential=lambda self, user, mechanism: KNOWN),
    "returns_credentials_of_the_mechanism": changed(Store, scram_credential=at_random),
    "draws_any_credential": changed(Store, any_credential=lambda self, mechanism, draw: [KNOWN][draw]),
    "lists_users_without_waiting": changed(Store, plain_credentials=lambda self: {"alice": KNOWN}),
    "is_watched": changed(Store, watch=block),
    "looks_up_from_several_threads": changed(Store, scram_credential=one_thread("scram_credential")),
}

# ---- transports


def layered(**members):
    layer = type("BrokenLayer", (PlaintextTransportLayer,), members)
    return changed(PlaintextTransport, wrap=lambda self, sock, peer: layer(sock))


def greet(self, sock, peer):
    sock.send(b"hello")
    return PlaintextTransportLayer(sock)


def lose_bytes(self, buffer):
    count = PlaintextTransportLayer.read_into(self, buffer)
    return count - 1 if count > 4000 else count


def hold_back(self, buffer):
    if not getattr(self, "held", b""):
        room = bytearray(1000)
        count = PlaintextTransportLayer.read_into(self, memoryview(room))
        if count <= 0:
            return count
        self.held = bytes(room[:count])
    some, self.held = self.held[: len(buffer)], self.held[len(buffer) :]
    buffer[: len(some)] = some
    return len(some)


def backwards(self, chunks, more=False):
    return PlaintextTransportLayer.write(self, list(chunks)[::-1] if len(chunks) > 5 else chunks, more)


def full_is_an_error(self, chunks, more=False):
    return PlaintextTransportLayer.write(self, chunks, more) or (_ for _ in ()).throw(BufferError("full"))


def from_the_start(self, descriptor, position, count):
    return PlaintextTransportLayer.send_file(self, descriptor, 0, count)


def never_ends(self, buffer):
    return max(0, PlaintextTransportLayer.read_into(self, buffer))


def other_error(self, chunks, more=False):
    try:
        return PlaintextTransportLayer.write(self, chunks, more)
    except OSError as error:
        raise ValueError("lost") from error


def close_once(self):
    if self._socket.fileno() < 0:
        raise ValueError("closed already")
    PlaintextTransportLayer.close(self)


def fail_by_key_error(self):
    if self._socket.recv(4, socket.MSG_PEEK) == b"GET ":
        raise KeyError("GET")
    return Interest.NONE


class Mixed(PlaintextTransport):
    """A transport that gives later connections the bytes of the first one."""

    first = None

    def wrap(self, sock, peer):
        layer = PlaintextTransportLayer(sock)
        if self.first is None or self.first._socket.fileno() < 0:
            self.first = layer
        else:
            layer._recv_into = self.first._socket.recv_into
        return layer


TRANSPORT = {
    "describes_itself": changed(PlaintextTransport, security_protocol="TLS"),
    "wraps_without_io": changed(PlaintextTransport, wrap=greet),
    "waits_for_a_silent_peer": layered(handshake=block),
    "reads_what_was_sent": layered(read_into=lose_bytes),
    "says_what_it_holds": layered(read_into=hold_back),
    "writes_in_order": layered(write=backwards),
    "stops_at_a_full_socket": layered(write=full_is_an_error),
    "sends_files": layered(send_file=from_the_start),
    "sees_the_end": layered(read_into=never_ends),
    "survives_a_reset": layered(write=other_error),
    "proves_who_the_peer_is": layered(principal="alice"),
    "is_aborted_from_any_thread": layered(abort=lambda self: self._socket.shutdown(2)),
    "closes_twice": layered(close=close_once),
    "fails_a_bad_handshake": layered(handshake=fail_by_key_error),
    "keeps_connections_apart": Mixed,
}
PLAYBOOKS = [
    Playbook([b"login alice"], ALICE),
    Playbook([b"login bob"], KafkaPrincipal("bob")),
    Playbook([b"login anna"], None),
]
TICKETS = [
    Playbook([b"alice's ticket"], ALICE),
    Playbook([b"hello", b"alice's ticket"], ALICE),
    Playbook([b"hello", b"bob's ticket"], None),
]
