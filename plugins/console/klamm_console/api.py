"""`Api`: the console's JSON API. It sends requests of Kafka's protocol over a listener, as the logged-in user."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from klamm import ServerServices, clipped
from klamm.testing import Admin
from klamm_console import access, changes, cluster, credentials, offsets, server_view
from klamm_console.arguments import MOST_PARTITION
from klamm_console.console_errors import ConsoleError, errors
from klamm_console.entry import Entry, LoginError, NoListenerError
from klamm_console.findings import HOURS, Findings
from klamm_console.live import Shared, Streams, TooManyStreamsError
from klamm_console.questions import LONGEST_NAME, key_of, name_of, number_of, text_of
from klamm_console.records import records_of
from klamm_console.routes import Answer, Argument, Question, Right, Route, document_of
from klamm_console.schemas import Schemas
from klamm_console.sessions import FailedLogins, Session, Sessions, TooManySessionsError, is_same
from klamm_console.test_kit import TestKit
from klamm_console.trail import emit, latest_events

log = logging.getLogger("klamm.console")

_ABOUT_NS: Final = 10 * 1_000_000_000
"""Time for which the console remembers a user's rights on the cluster, so that it can show an overloaded server."""
_UNANSWERED_NS: Final = 30 * 1_000_000_000
"""Time after which a listener that did not answer is asked again."""
_UNKNOWN: Final[dict[str, Any]] = {"cluster_id": None, "controller_id": None, "nodes": []}


_Call = Callable[[Session, Question], Any]
_NAMED: Final = Argument("name", "Its name.")


class Api:
    """Any thread may call it."""

    def __init__(
        self, services: ServerServices, entry: Entry, sessions: Sessions, schemas: Schemas, token: str
    ) -> None:
        self._services = services
        self._entry = entry
        self._sessions = sessions
        self._schemas = schemas
        self._token = token
        self._kit = TestKit(services, sessions.keep)
        self._failures = FailedLogins(services.clock)
        self.streams = Streams()
        self.findings = Findings(services)
        self._overview = Shared(services.clock, lambda: server_view.overview(services))
        self._open_connections = Shared(services.clock, lambda: server_view.connections(services))
        self._latest = Shared(services.clock, lambda: latest_events(services))
        self.routes: dict[tuple[str, str], Route] = {
            (each.method, each.name): each
            for routes in (self._open(), self._views(), self._actions(), self._of_the_kit())
            for each in routes
        }

    def _open(self) -> Iterator[Route]:
        yield Route("GET", "openapi.json", "This description.", lambda _: Answer(self.document()), is_open=True)
        yield Route("GET", "session", "The logged-in user, and the ways to log in.", self._session, is_open=True)
        yield Route(
            "POST",
            "login",
            "Log in: with a token, or as a user of the listener.",
            self._log_in,
            (
                Argument("token", "The token, if the listener has no authenticator.", required=False),
                Argument("user", "The user's name.", required=False),
                Argument("password", "The user's password.", required=False),
                Argument("mechanism", "One of the mechanisms that `session` returns.", required=False),
            ),
            is_open=True,
        )

    def _views(self) -> Iterator[Route]:
        yield from self._views_of_server()
        yield from self._views_of_cluster()
        yield from self._views_of_audit()

    def _view(
        self,
        name: str,
        summary: str,
        call: _Call,
        *arguments: Argument,
        rows: bool = False,
        right: Right = "",
        every_s: float = 0.0,
    ) -> Route:
        answer: Literal["array", "object"] = "array" if rows else "object"
        ask = functools.partial(self._for_session, call, right)
        return Route("GET", name, summary, ask, arguments, answer, right=right, every_s=every_s)

    def _views_of_server(self) -> Iterator[Route]:
        yield Route(
            "GET",
            "events",
            "A stream of server-sent events: `view` has the answer of a view each time that it changes, `problem` an"
            " error, and `end` the error that ends it, e.g. of a session that has ended.",
            self._events,
            (Argument("view", "One of server, connections, groups, transactions, audit."),),
            "events",
        )
        yield self._view(
            "server",
            "The cluster, the listeners, the stages of a request, and certificates.",
            self._server,
            right="Describe",
            every_s=2,
        )
        yield self._view("connections", "The open connections.", self._connections, right="Describe", every_s=2)
        yield self._view(
            "listener",
            "The parts of a listener with their settings as they are in use. Secrets are hidden.",
            self._listener,
            _NAMED,
            right="Describe",
        )

    def _views_of_cluster(self) -> Iterator[Route]:
        yield self._view("topics", "The topics.", lambda session, _: cluster.topics(session.admin), rows=True)
        yield self._view(
            "topic",
            "Partitions and configs of a topic.",
            lambda session, question: cluster.topic(session.admin, name_of(question)),
            _NAMED,
        )
        yield self._view(
            "records",
            "Records of a partition.",
            self._records,
            _NAMED,
            Argument("partition", "Its number, 0 by default.", "integer", required=False),
            Argument(
                "offset", "The first offset; without an offset and a time, the last records.", "integer", required=False
            ),
            Argument("timestamp_ms", "The time of the first record.", "integer", required=False),
            Argument("limit", "The maximum number of records, 50 by default.", "integer", required=False),
            Argument("key", "Only records with this key. One request searches up to 100,000 records.", required=False),
        )
        yield self._view(
            "groups",
            "The groups of all kinds, the first ones with their lag.",
            lambda session, _: cluster.groups(session.admin),
            rows=True,
            every_s=10,
        )
        yield self._view(
            "group",
            "Members, offsets and lag of a group.",
            lambda session, question: cluster.group(session.admin, name_of(question)),
            _NAMED,
        )
        yield self._view(
            "transactions",
            "The transactions.",
            lambda session, _: cluster.transactions(session.admin),
            rows=True,
            every_s=5,
        )
        yield self._view("quotas", "The quotas.", lambda session, _: cluster.quotas(session.admin), rows=True)
        yield self._view(
            "users", "The users with SCRAM credentials.", lambda session, _: credentials.users(session.admin), rows=True
        )
        yield self._view("acls", "The ACLs.", lambda session, _: cluster.acls(session.admin), rows=True)

    def _views_of_audit(self) -> Iterator[Route]:
        yield self._view(
            "audit",
            "The latest events of the audit since the start.",
            lambda _, asked: self._latest(is_live=asked.is_live),
            rows=True,
            right="Alter",
            every_s=5,
        )
        yield self._view(
            "findings",
            "What the rules of `klamm audit detect` find in the audit's spool. Waits up to a minute.",
            self._found,
            Argument("hours", f"One of {', '.join(map(str, HOURS))}; 24 by default.", "integer", required=False),
            right="Alter",
        )
        yield self._view(
            "access",
            "The operations that a principal may perform, and the reasons, by a listener's authorizer.",
            self._access,
            Argument("principal", "E.g. `User:alice`; a name alone is a user."),
            Argument("resource", f"One of {', '.join(access.OPERATIONS)}."),
            Argument("name", "The resource's name; the cluster needs none.", required=False),
            Argument("operation", "E.g. `READ`. Without it, each operation of the resource.", required=False),
            Argument("host", "The client's address, 127.0.0.1 by default.", required=False),
            Argument(
                "listener", "The listener whose authorizer decides; by default that of the login.", required=False
            ),
            right="Describe",
        )

    def _actions(self) -> Iterator[Route]:
        def action(name: str, summary: str, call: _Call, *arguments: Argument, right: Right = "") -> Route:
            return Route("POST", name, summary, functools.partial(self._for_session, call, ""), arguments, right=right)

        yield action("logout", "End the session.", self._log_out)
        yield action(
            "close_connection",
            "Close a connection.",
            self._close_connection,
            Argument("id", "Its id, which `connections` returns."),
            right="Alter",
        )
        yield action(
            "move_connection",
            "Move a connection to another processor of its listener.",
            self._move_connection,
            Argument("id", "Its id, which `connections` returns."),
            Argument("processor", "The processor's number.", "integer"),
            right="Alter",
        )
        yield action(
            "create_topic",
            "Create a topic.",
            self._create_topic,
            _NAMED,
            Argument("partitions", "Their number, 1 by default.", "integer", required=False),
        )
        yield action(
            "delete_topic",
            "Delete a topic and its records.",
            lambda session, question: session.admin.delete_topics(text_of(question, "name")),
            _NAMED,
        )
        made = credentials.actions(self._services.random_bytes)
        for name, summary, change, arguments in (*changes.ACTIONS, *offsets.ACTIONS, *made):
            yield action(name, summary, functools.partial(_changed, change), *arguments)
        yield action(
            "delete_group",
            "Delete a group and its offsets.",
            lambda session, question: session.admin.delete_groups(text_of(question, "name")),
            _NAMED,
        )

    def _of_the_kit(self) -> Iterator[Route]:
        for name, summary, ask in self._kit.views():
            view = functools.partial(_shown, ask)
            yield Route("GET", name, summary, functools.partial(self._for_session, view, "Describe"), right="Describe")
        for name, summary, act, arguments in self._kit.actions():
            action = functools.partial(self._kit_action, name, act)
            call = functools.partial(self._for_session, action, "")
            yield Route("POST", name, summary, call, arguments, right="Alter")

    def document(self) -> dict[str, Any]:
        """Return the description of the API."""
        return document_of(self.routes.values())

    def answer(self, question: Question) -> Answer:
        """Return the answer to a request. Raises ConsoleError."""
        route = None
        if len(question.words) == 2 and question.words[0] == "api":
            route = self.routes.get((question.method, question.words[1]))
        if route is None:
            raise ConsoleError(404, "not found")
        try:
            return route.call(question)
        except NoListenerError as error:
            # A reload has removed it.
            raise ConsoleError(502, str(error)) from error

    def _for_session(self, call: _Call, right: Right, question: Question) -> Answer:
        session = self._session_of(question)
        content = self._call(call, right, session, question)
        return content if isinstance(content, Answer) else Answer({} if content is None else content)

    def _session_of(self, question: Question) -> Session:
        found = self._sessions.find(question.session, question.csrf, is_use=not question.is_live)
        if found is None:
            raise ConsoleError(401, "log in first")
        return found

    def _call(self, call: _Call, right: Right, session: Session, question: Question) -> Any:
        with errors():
            try:
                if right:
                    self._check_right(session, right)
                return call(session, question)
            except LoginError:
                # The account's password has changed since the login.
                self._sessions.end(session)
                raise

    def _events(self, question: Question) -> Answer:
        session = self._session_of(question)
        route = self.routes.get(("GET", question.query.get("view", "")))
        if route is None or not route.every_s:
            known = ", ".join(each.name for each in self.routes.values() if each.every_s)
            raise ConsoleError(400, f"view must be one of {known}")
        asked = replace(question, words=("api", route.name), query={}, is_live=True)

        def look() -> tuple[str, Any]:
            try:
                return "view", self.answer(asked).content
            except ConsoleError as error:
                return "end" if error.status == 401 else "problem", {"error": str(error), "name": error.name}
            except Exception:
                log.exception("the stream of %s failed", route.name)
                return "end", {"error": "the stream failed; the log has the reason", "name": ""}

        first = self.answer(asked).content
        try:
            return Answer(None, events=self.streams.open(session.user, first, look, route.every_s))
        except TooManyStreamsError as error:
            raise ConsoleError(503, str(error)) from error

    # ---- login

    def _session(self, question: Question) -> Answer:
        found = self._sessions.find(question.session, question.csrf)
        with errors():
            content: dict[str, Any] = {
                "listener": self._entry.listener.name,
                "needs_token": self._entry.needs_token,
                "mechanisms": [] if found else self._entry.mechanisms(),
            }
        if found is not None:
            content |= {"user": found.user, "has_test_kit": self._kit.is_there}
        return Answer(content)

    def _log_in(self, question: Question) -> Answer:
        needs_token = self._entry.needs_token
        user = "ANONYMOUS" if needs_token else text_of(question, "user")
        has_token = needs_token and is_same(text_of(question, "token"), self._token)
        if not has_token and self._failures.are_too_many(user):
            raise ConsoleError(429, "too many logins have failed; try again in a few seconds")
        if needs_token and not has_token:
            self._failures.note(user)
            raise ConsoleError(401, "the token is wrong; the server's start message shows the right one")
        account = None
        if not needs_token:
            account = self._entry.account(self._mechanism(question), user, text_of(question, "password"))
        admin = self._entry.admin(account)
        probe = self._entry.probe() if needs_token else admin
        try:
            with errors():
                about = self._ask(probe)
            made = self._sessions.add(user, admin, probe)
            made.about, made.about_ns = about, self._services.clock.monotonic_ns()
        except TooManySessionsError as error:
            admin.close()
            probe.close()
            raise ConsoleError(503, str(error)) from error
        except ConsoleError as error:
            admin.close()
            probe.close()
            if error.status == 401:
                self._failures.note(user)
            raise
        content = {"user": user, "csrf": made.csrf, "has_test_kit": self._kit.is_there}
        return Answer(content, cookie=made.key)

    def _ask(self, probe: Admin) -> dict[str, Any]:
        """Return the answer to DescribeCluster.

        If the listener does not answer, e.g. because it is overloaded, a user with the token still sees the server:
        the answer then has the rights that the listener's authorizer grants, and the reason as `unanswered`.
        """
        try:
            return cluster.about(probe)
        except (TimeoutError, ConnectionError, EOFError) as error:
            # Errors of TLS are none of these: they have a reason that the user must see.
            if not self._entry.needs_token:
                raise
            rights = access.rights_on_cluster(self._services, self._entry.listener, "ANONYMOUS", self._entry.host)
            return {**_UNKNOWN, **rights, "unanswered": str(error) or type(error).__name__}

    def _log_out(self, session: Session, _: Question) -> Answer:
        self._sessions.end(session)
        return Answer({}, cookie="")

    def _mechanism(self, question: Question) -> str:
        with errors():
            offered = self._entry.mechanisms()
        if not offered:
            raise ConsoleError(501, "the listener has none of the console's mechanisms, PLAIN and SCRAM")
        wanted = question.body.get("mechanism") or offered[0]
        if wanted not in offered:
            raise ConsoleError(400, f"mechanism must be one of {', '.join(offered)}")
        return str(wanted)

    # ---- the server itself

    def _check_right(self, session: Session, right: Right) -> None:
        """Raise ConsoleError if the user does not have a right on the cluster. `session.about` is then there."""
        now_ns = self._services.clock.monotonic_ns()
        known_for_ns = _UNANSWERED_NS if session.about and "unanswered" in session.about else _ABOUT_NS
        if session.about is None or now_ns - session.about_ns > known_for_ns:
            try:
                session.about, session.about_ns = self._ask(session.probe), now_ns
            except (OSError, EOFError):
                # The reason may be a fault or a stopped node of the test kit, which only the page can undo.
                if session.about is None or not self._kit.is_there:
                    raise
        if not self._entry.knows_rights:
            message = (
                "the console's listener cannot decide who may see the server: it has no authorizer, or it has tenants"
            )
            raise ConsoleError(403, message, "CLUSTER_AUTHORIZATION_FAILED")
        if not session.about[f"may_{right.lower()}"]:
            raise ConsoleError(403, f"this needs the right {right} on the cluster", "CLUSTER_AUTHORIZATION_FAILED")

    def _server(self, session: Session, asked: Question) -> Any:
        return {"cluster": session.about, **self._overview(is_live=asked.is_live)}

    def _listener(self, _: Session, question: Question) -> Any:
        name = name_of(question)
        try:
            return {"name": name, "parts": server_view.parts_of(self._services, name)}
        except LookupError as error:
            raise ConsoleError(409, f"there is no listener {name}") from error

    def _connections(self, _: Session, asked: Question) -> Any:
        return self._open_connections(is_live=asked.is_live)

    def _access(self, _: Session, question: Question) -> Any:
        query = question.query
        principal, name, listener = (query.get(each, "") for each in ("principal", "name", "listener"))
        if not principal or max(len(principal), len(name)) > LONGEST_NAME:
            raise ConsoleError(400, "the query needs a principal, e.g. User:alice")
        asked = self._services.listeners.get(listener) if listener else self._entry.listener
        if asked is None:
            raise ConsoleError(400, f"listener must be one of {', '.join(self._services.listeners)}")
        host = query.get("host") or "127.0.0.1"
        about = (principal, host, query.get("resource", ""), name, query.get("operation", ""))
        try:
            return access.rights_anywhere(self._services, asked, *about)
        except ValueError as error:
            raise ConsoleError(400, str(error)) from error

    def _found(self, _: Session, question: Question) -> Any:
        hours = number_of(question, "hours", 24)
        if hours not in HOURS:
            raise ConsoleError(400, f"hours must be one of {', '.join(map(str, HOURS))}")
        return self.findings.look(hours)

    def _close_connection(self, session: Session, question: Question) -> None:
        name = text_of(question, "id")
        self._act_on_connection(session, "connection_closed", name, lambda known: known.close(name))

    def _move_connection(self, session: Session, question: Question) -> None:
        name, index = text_of(question, "id"), question.body.get("processor")
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < 1 << 31:
            raise ConsoleError(400, "processor must be a number")
        what = f"{clipped(name, 200)} to processor {index}"
        self._act_on_connection(session, "connection_moved", what, lambda known: known.move(name, index))

    def _act_on_connection(self, session: Session, action: str, what: str, call: Callable[[Any], str]) -> None:
        detail = f"{clipped(what, 300)} by {clipped(session.user, 200)} in the console"
        try:
            self._check_right(session, "Alter")
        except ConsoleError:
            emit(self._services, action, detail, failed=True)
            raise
        known = self._services.connections
        problem = "this server does not show its connections" if known is None else call(known)
        if problem:
            raise ConsoleError(409, problem)
        self._record(action, detail)

    def _record(self, action: str, detail: str) -> None:
        """Emit the event of what was done. Raises ConsoleError if the audit does not have it."""
        if not emit(self._services, action, detail):
            raise ConsoleError(503, "it is done, but no worker has recorded it in the audit; the log has the event")

    # ---- the test kit

    def _kit_action(
        self, name: str, call: Callable[[Mapping[str, Any]], Any], session: Session, asked: Question
    ) -> None:
        detail = f"{clipped(str(dict(asked.body)), 200)} by {clipped(session.user, 200)} in the console"
        try:
            self._check_right(session, "Alter")
            call(asked.body)
        except ValueError as error:
            raise ConsoleError(400, str(error)) from error
        except LookupError as error:
            raise ConsoleError(409, str(error.args[0])) from error
        except ConsoleError:
            emit(self._services, name, detail, failed=True)
            raise
        self._record(name, detail)

    # ---- topics

    def _records(self, session: Session, question: Question) -> Any:
        return records_of(
            session.admin,
            name_of(question),
            number_of(question, "partition", 0, MOST_PARTITION),
            self._schemas.page(),
            offset=number_of(question, "offset", -1),
            timestamp_ms=number_of(question, "timestamp_ms", -1),
            limit=number_of(question, "limit", 50),
            key=key_of(question),
        )

    def _create_topic(self, session: Session, question: Question) -> None:
        partitions = question.body.get("partitions", 1)
        if not isinstance(partitions, int) or not 0 < partitions < 1 << 31:
            raise ConsoleError(400, "partitions must be a number above 0")
        session.admin.create_topic(text_of(question, "name"), partitions, replication_factor=-1)


def _shown(call: Callable[[], Any], _session: Session, _question: Question) -> Any:
    return call()


def _changed(change: Callable[[Admin, Mapping[str, Any]], None], session: Session, question: Question) -> None:
    change(session.admin, question.body)
