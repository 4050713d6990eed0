"""A day of normal traffic: clients of three teams on a real server, whose clock moves from hour to hour."""

from __future__ import annotations

from pathlib import Path

from klamm.testing import Acls, Admin, EmbeddedServer, MovingClock, RawClient
from klamm.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from klamm.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from klamm.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.sasl_client import log_in, users_setting

HOUR_MS = 3_600_000
TOPIC, GROUP = "orders", "billing"
RECORD = bytes(10_000)
RECORDS_AN_HOUR = 40
SETTINGS = (
    "authenticator=sasl",
    'sasl.mechanisms=["SCRAM-SHA-256"]',
    "authorizer=acl",
    'acl.super_users=["User:admin"]',
    'observers=["audit"]',
)


class HonestDay:
    """Plays the day. `spool` has its events."""

    def __init__(self, folder: Path, mistakes: int = 1) -> None:
        self.spool, self._mistakes, self._read, self._epochs = folder / "spool", mistakes, 0, {"one": 0, "two": 0}
        (folder / "token-key").write_text("a key of tokens")
        settings = [f"listeners.default.{each}" for each in SETTINGS]
        settings += [
            f"listeners.default.{users_setting(admin='right', shop='right', billing='right', analyst='right')}",
            f"listeners.default.audit.spool={self.spool}",
            "listeners.default.audit.node=node-1",
            f"broker.delegation.token.secret.key.file={folder / 'token-key'}",
        ]
        self.server = EmbeddedServer(settings, clock=MovingClock())

    def play(self) -> None:
        with self.server:
            for hour in range(24):
                self._hour(hour)
                self.server.advance_ms(HOUR_MS)

    def client(self, user: str, password: str = "right") -> RawClient:
        """Log in. The server closes a client with a wrong password."""
        client = RawClient(self.server.address(), client_id=f"{user}-client", timeout_s=120)
        if log_in(client, "SCRAM-SHA-256", user, password).error_code:
            client.close()
        return client

    def _admin(self, user: str) -> Admin:
        return Admin(lambda: self.client(user), self.server.server.clock)

    def _hour(self, hour: int) -> None:
        if hour == 1:
            self._administrate()
        if hour == 9:
            for _ in range(self._mistakes):
                self.client("analyst", "rihgt")
            self.client("analyst").close()
        if hour == 12:
            self.server.restart()
            self._epochs = dict.fromkeys(self._epochs, 0)
        if hour >= 2:
            self._work(hour)
        if hour in (2, 8, 14, 20):
            self._renew(hour)

    def _administrate(self) -> None:
        admin = self._admin("admin")
        admin.create_topic(TOPIC, configs={"retention.ms": 7 * 24 * HOUR_MS})
        acls = Acls(admin)
        acls.allow("shop", "WRITE", "TOPIC", TOPIC)
        for kind, name in (("TOPIC", TOPIC), ("GROUP", GROUP)):
            acls.allow("billing", "READ", kind, name)
        admin.close()

    def _work(self, hour: int) -> None:
        """Let the shop produce and billing read.

        Billing's second member is there only by day, so its group rebalances.
        """
        shop = self._admin("shop")
        shop.produce(TOPIC, *[RECORD] * RECORDS_AN_HOUR)
        shop.close()
        reader = self._admin("billing")
        self._read += len(reader.consume(TOPIC, RECORDS_AN_HOUR, offset=self._read, partition=0))
        reader.close()
        with self.client("billing") as client:
            self._beat(client, "one", leaves=False)
            if 8 <= hour <= 18:
                self._beat(client, "two", leaves=False)
            if hour == 18:
                self._beat(client, "two", leaves=True)
            topic = OffsetCommitRequestTopic(TOPIC, partitions=[OffsetCommitRequestPartition(0, self._read)])
            epoch = self._epochs["one"]
            request = OffsetCommitRequest(GROUP, epoch, "one", topics=[topic])
            assert client.call(request, 9).topics[0].partitions[0].error_code == 0

    def _beat(self, client: RawClient, member: str, *, leaves: bool) -> None:
        """Join the group again, because the session has ended within the hour."""
        answer = client.call(
            ConsumerGroupHeartbeatRequest(
                GROUP,
                member,
                -1 if leaves else 0,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=[TOPIC],
                topic_partitions=[],
            ),
            1,
        )
        assert answer.error_code == 0, answer.error_message
        self._epochs[member] = answer.member_epoch

    def _renew(self, hour: int) -> None:
        with self.client("shop") as client:
            if hour == 2:
                answer = client.call(CreateDelegationTokenRequest(None, None, [], 7 * 24 * HOUR_MS), 3)
                self._hmac = answer.hmac
            else:
                answer = client.call(RenewDelegationTokenRequest(self._hmac, 24 * HOUR_MS), 2)
            assert answer.error_code == 0
