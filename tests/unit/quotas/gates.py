"""Listeners without sockets, for tests of gates. One thread does the work of acceptor and processors."""

import itertools

from klamm import Address, ListenerContext, ServerServices
from klamm.runtime import Scheduler
from klamm.shared import CLIENT_QUOTAS, client_quota_key
from klamm.testing import ManualClock


class GatedListener:
    """A listener with its gates.

    Connections are admitted or refused, and close, authenticate or fail to authenticate.
    """

    def __init__(self, server, name, *gates, security_protocol="SASL_PLAINTEXT"):
        self.server = server
        self.gates = gates
        self.resumed = 0
        self.open_connections = []
        here = Address("127.0.0.1", 1)
        self.context = ListenerContext(name, here, here, services=server.services)
        self.context.security_protocol = security_protocol
        self.context.resume_accepting = self._resume
        self.context.close_least_recently_used = self._evict
        server.services.listeners[name] = self.context
        for gate in gates:
            gate.open(self.context)

    def _resume(self):
        self.resumed += 1

    def _evict(self):
        if self.open_connections:
            self.close(self.open_connections[0])
            return True
        return False

    def ask(self, address):
        """Ask all gates once, as the acceptor does. If one refuses, those that have admitted are released."""
        admitted = []
        for gate in self.gates:
            answer = gate.admit(address)
            if answer is not None:
                for each in admitted:
                    each.release(address)
                return answer
            admitted.append(gate)
        self.open_connections.append(address)
        return None

    def connect(self, host="10.0.0.1"):
        return self.ask(self.server.new_address(host))

    def close(self, address):
        self.open_connections.remove(address)
        for gate in self.gates:
            gate.release(address)

    def authenticated(self, address, *, identified=True):
        for gate in self.gates:
            gate.authenticated(address)
            if identified:
                gate.identified(address)

    def fail(self, address):
        for gate in self.gates:
            gate.authentication_failed(address)
        self.close(address)


class GateServer:
    """The services of one server, with a manual clock."""

    def __init__(self):
        self.clock = ManualClock()
        self.services = ServerServices(self.clock, Scheduler(self.clock))
        self._ports = itertools.count(1024)

    def advance_ms(self, ms):
        self.clock.advance_ms(ms)
        self.services.scheduler.run_due()

    def new_address(self, host):
        return Address(host, next(self._ports))

    def set_ip_rate(self, ip, rate):
        entity = {"ip": ip}
        row = None if rate is None else {"entity": entity, "quotas": {"connection_creation_rate": float(rate)}}
        self.services.shared.table(CLIENT_QUOTAS).update({client_quota_key(entity): row})

    def metric(self, name):
        for family in self.services.metrics.collect():
            if family.name == name:
                return {tuple(sample.labels.values()): sample.value for sample in family.samples}
        raise AssertionError(f"no metric {name}")
