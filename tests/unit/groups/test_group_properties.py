"""Random members and the coordinator: each request has one answer, and no two members share an assignment."""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groups_playbook import GROUP, REBALANCE_MS, SESSION_MS, Call, Playbook, subscription
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from klamm import ErrorCode
from klamm_broker.groups.classic_group import ClassicGroup
from klamm_broker.groups.requests import JoinResult, LeavingMember, SyncResult
from klamm_broker.groups.state import PREPARING_REBALANCE, STABLE

PROTOCOLS = (
    (("range", subscription("t")),),
    (("range", subscription("t")), ("sticky", subscription("t"))),
    (("sticky", subscription("t", "u")), ("range", subscription("u"))),
)


@dataclass(eq=False)
class Client:
    """A member with its own view of the group."""

    group_instance_id: str | None = None
    member_id: str = ""
    generation_id: int = -1
    leads: bool = False
    member_ids: tuple[str, ...] = ()
    join: Call[JoinResult] | None = None
    sync: Call[SyncResult] | None = None

    def notice_answers(self) -> None:
        if self.join is not None and not self.join.waits:
            result, self.join = self.join.result, None
            if result.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                self.member_id = result.member_id
            elif result.error_code is not ErrorCode.REBALANCE_IN_PROGRESS:
                self.member_id = ""
            if result.error_code is ErrorCode.NONE:
                self.generation_id = result.generation_id
                self.leads = result.leader_id == result.member_id and not result.skip_assignment
                self.member_ids = tuple(member.member_id for member in result.members)
        if self.sync is not None and not self.sync.waits:
            self.sync = None

    @property
    def busy(self) -> bool:
        """Return True if the client waits for an answer. A client has at most one request open."""
        return self.join is not None or self.sync is not None


class Members(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.play = Playbook(Path(self.directory.name) / "klamm.db")
        self.clients = [Client(), Client(), Client(), Client("one"), Client("two")]
        self.calls: list[Call[Any]] = []
        self.tokens = itertools.count(1)
        self.assignments: dict[tuple[int, str], bytes] = {}
        self.highest_generation_id = 0
        self.stable_generation_id = 0

    clients_drawn = st.integers(0, 4)

    @initialize(delay_ms=st.sampled_from([0, 3_000]), max_size=st.sampled_from([3, 100]))
    def choose_settings(self, delay_ms: int, max_size: int) -> None:
        self.play.restart(group_initial_rebalance_delay_ms=delay_ms, group_max_size=max_size)

    @rule(index=clients_drawn, protocols=st.sampled_from(PROTOCOLS), skips=st.booleans())
    def join(self, index: int, protocols: tuple[tuple[str, bytes], ...], skips: bool) -> None:
        client = self.clients[index]
        if client.busy:
            return
        client.join = self.play.ask_join(
            client.member_id,
            group_instance_id=client.group_instance_id,
            protocols=protocols,
            supports_skipping_assignment=skips,
        )
        self.calls.append(client.join)

    @rule(index=clients_drawn)
    def sync(self, index: int) -> None:
        client = self.clients[index]
        if client.busy or not client.member_id:
            return
        assignments = {each: b"%d" % next(self.tokens) for each in client.member_ids} if client.leads else {}
        call = client.sync = self.play.ask_sync(
            client.member_id, client.generation_id, assignments, group_instance_id=client.group_instance_id
        )
        self.calls.append(call)

    @rule(index=clients_drawn)
    def heartbeat(self, index: int) -> None:
        client = self.clients[index]
        if not client.busy:
            self.play.heartbeat(client.member_id, client.generation_id, client.group_instance_id)

    @rule(index=clients_drawn)
    def leave(self, index: int) -> None:
        client = self.clients[index]
        self.play.leave(LeavingMember(client.member_id, client.group_instance_id))

    @rule(index=clients_drawn)
    def restart_client(self, index: int) -> None:
        """End the client without a leave. Its open request may still be answered."""
        self.clients[index] = Client(self.clients[index].group_instance_id)

    @rule(index=st.integers(3, 4))
    def restart_static_client(self, index: int) -> None:
        """Start a static client again with its instance id, and let it join at once."""
        self.restart_client(index)
        self.join(index, PROTOCOLS[0], True)

    @rule(ms=st.sampled_from([1, 100, 3_000, SESSION_MS // 2]))
    def time_passes(self, ms: int) -> None:
        self.play.advance(ms)

    @rule()
    def store_commits(self) -> None:
        self.play.settle()

    @rule()
    def everyone_rejoins(self) -> None:
        """Let all members rejoin, because random members seldom form a stable group."""
        for index in range(len(self.clients)):
            self.clients[index].notice_answers()
            self.join(index, PROTOCOLS[0], True)
        self.play.settle()
        for index, client in enumerate(self.clients):
            client.notice_answers()
            self.join(index, PROTOCOLS[0], True)
        self.play.advance(SESSION_MS - 1)
        for index, client in enumerate(self.clients):
            client.notice_answers()
            self.sync(index)

    @precondition(lambda self: self.play.state() == "Stable")
    @rule()
    def server_restarts(self) -> None:
        self.play.settle()
        self.play.restart()
        group = self.group()
        assert group is not None
        assert group.generation_id == self.highest_generation_id
        assert group.state is STABLE

    @rule()
    def server_crashes(self) -> None:
        # Unanswered requests end with their connections.
        for call in self.calls:
            assert len(call.answers) <= 1
        self.calls = [call for call in self.calls if not call.waits]
        for client in self.clients:
            client.notice_answers()
            client.join = client.sync = None
        self.play.crash()
        group = self.group()
        self.highest_generation_id = group.generation_id if group is not None else 0
        assert self.highest_generation_id >= self.stable_generation_id
        self.assignments = {key: each for key, each in self.assignments.items() if key[0] <= self.highest_generation_id}

    def group(self) -> ClassicGroup | None:
        return self.play.coordinator.registry.classic(GROUP)

    @invariant()
    def answers_are_given_once(self) -> None:
        for call in self.calls:
            assert len(call.answers) <= 1
        for client in self.clients:
            self.check_assignment(client)
            client.notice_answers()

    def check_assignment(self, client: Client) -> None:
        if client.sync is None or client.sync.waits:
            return
        result = client.sync.result
        if result.error_code is not ErrorCode.NONE:
            return
        self.stable_generation_id = max(self.stable_generation_id, client.generation_id)
        # A member that syncs again gets the same assignment, and no other member does.
        assignments = self.assignments.setdefault((client.generation_id, client.member_id), result.assignment)
        assert assignments == result.assignment
        assert result.assignment

    @invariant()
    def the_books_are_right(self) -> None:
        group = self.group()
        if group is None:
            return
        assert group.generation_id >= self.highest_generation_id
        self.highest_generation_id = group.generation_id
        members = group.members.values()
        assert group.awaiting_join_count == sum(member.awaits_join for member in members)
        assert group.static_members == {
            member.group_instance_id: member.member_id for member in members if member.is_static
        }
        assert group.leader_id in group.members if members else group.leader_id is None
        assert group.pending_syncs <= set(group.members)
        assert not group.pending_joins.keys() & group.members.keys()
        assert all(member.timer is not None or member.has_satisfied_heartbeat for member in members)
        assert group.state is not PREPARING_REBALANCE or group.join_timer is not None
        if group.state is STABLE:
            assignments = [member.assignment for member in members]
            assert len(set(assignments)) == len(assignments)

    def teardown(self) -> None:
        """Once all members are silent, all requests are answered and the group is empty."""
        self.play.advance(20 * REBALANCE_MS)
        assert not any(call.waits for call in self.calls)
        self.answers_are_given_once()
        group = self.group()
        assert group is None or not group.members
        self.play.close()
        self.directory.cleanup()


TestMembers = Members.TestCase
TestMembers.settings = settings(max_examples=150, stateful_step_count=40)
