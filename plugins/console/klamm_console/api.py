"""`Api`: the console's JSON API. What Kafka's protocol has is asked as the user who is logged in, over a listener."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from struct import error as StructError
from typing import Any, Final

from klamm import KafkaError, ServerServices, clipped
from klamm_console import cluster, server_view
from klamm_console.entry import Entry, LoginError
from klamm_console.records import records_of
from klamm_console.sessions import FailedLogins, Session, Sessions, TooManySessionsError, is_same

_ABOUT_NS: Final = 10 * 1_000_000_000
"""So long the rights of a user on the cluster are remembered: an overloaded server can be looked at."""
_LIVE: Final = frozenset({"server", "connections"})
"""What the page asks for by itself."""
_MOST_OFFSET: Final = (1 << 63) - 1
_MOST_PARTITION: Final = (1 << 31) - 1
_NAME: Final = 4096


class ConsoleError(Exception):
    """A request that cannot be answered: HTTP's status, and Kafka's name of the error if it is one of Kafka's."""

    def __init__(self, status: int, message: str, name: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.name = name


@dataclass(frozen=True, slots=True)
class Question:
    """A request: its method, the words of its path, and the secrets that it shows."""

    method: str
    words: tuple[str, ...]
    query: Mapping[str, str]
    body: Mapping[str, Any]
    session: str
    csrf: str

    def text(self, name: str) -> str:
        """Return a text of the body. Raises ConsoleError."""
        value = self.body.get(name)
        if not isinstance(value, str) or len(value) > _NAME or not _is_unicode(value):
            raise ConsoleError(400, f"{name} must be a text")
        return value

    def number(self, name: str, default: int, most: int = _MOST_OFFSET) -> int:
        """Return a number of the query, -1 to `most`. Raises ConsoleError."""
        text = self.query.get(name, "") or str(default)
        try:
            # More digits than an offset or a time has.
            found = int(text) if len(text) < 20 else most + 1
        except ValueError:
            found = most + 1
        if not -1 <= found <= most:
            raise ConsoleError(400, f"{name} must be a number up to {most}")
        return found


@dataclass(frozen=True, slots=True)
class Answer:
    """JSON, HTTP's status, and a new cookie: an empty one ends the session."""

    content: Any
    status: int = 200
    cookie: str | None = None


_Call = Callable[["Session", Question], Any]


class Api:
    """Any thread may call it."""

    def __init__(self, services: ServerServices, entry: Entry, sessions: Sessions, token: str) -> None:
        self._services = services
        self._entry = entry
        self._sessions = sessions
        self._token = token
        self._failures = FailedLogins(services.clock)
        self._pages: Mapping[str, _Call] = {
            "server": lambda session, _: self._server(session),
            "connections": lambda session, _: self._connections(session),
            "topics": lambda session, _: cluster.topics(session.admin),
            "topic": lambda session, question: cluster.topic(session.admin, _named(question)),
            "records": lambda session, question: self._records(session, question),
            "groups": lambda session, _: cluster.groups(session.admin),
            "group": lambda session, question: cluster.group(session.admin, _named(question)),
            "transactions": lambda session, _: cluster.transactions(session.admin),
            "quotas": lambda session, _: cluster.quotas(session.admin),
            "acls": lambda session, _: cluster.acls(session.admin),
        }
        self._actions: Mapping[str, _Call] = {
            "logout": lambda session, _: self._sessions.end(session),
            "close_connection": self._close_connection,
            "create_topic": self._create_topic,
            "delete_topic": lambda session, question: session.admin.delete_topics(question.text("name")),
            "delete_group": lambda session, question: session.admin.delete_groups(question.text("name")),
        }

    def answer(self, question: Question) -> Answer:
        """Return the answer to a request. Raises ConsoleError."""
        match question.method, question.words:
            case "GET", ("api", "session"):
                return self._session(question)
            case "POST", ("api", "login"):
                return self._log_in(question)
            case "GET", ("api", name) if name in self._pages:
                session = self._session_of(question, is_use=name not in _LIVE)
                return Answer(self._call(self._pages[name], session, question))
            case "POST", ("api", name) if name in self._actions:
                session = self._session_of(question)
                content = self._call(self._actions[name], session, question)
                return Answer(content or {}, cookie="" if name == "logout" else None)
        raise ConsoleError(404, "not found")

    def _session_of(self, question: Question, *, is_use: bool = True) -> Session:
        found = self._sessions.find(question.session, question.csrf, is_use=is_use)
        if found is None:
            raise ConsoleError(401, "log in first")
        return found

    def _call(self, call: _Call, session: Session, question: Question) -> Any:
        with _errors():
            try:
                return call(session, question)
            except LoginError:
                # The account has lost its password since.
                self._sessions.end(session)
                raise

    # ---- login

    def _session(self, question: Question) -> Answer:
        found = self._sessions.find(question.session, question.csrf)
        with _errors():
            content: dict[str, Any] = {
                "listener": self._entry.listener.name,
                "needs_token": self._entry.needs_token,
                "mechanisms": [] if found else self._entry.mechanisms(),
            }
        return Answer(content | {"user": found.user} if found is not None else content)

    def _log_in(self, question: Question) -> Answer:
        needs_token = self._entry.needs_token
        user = "ANONYMOUS" if needs_token else question.text("user")
        has_token = needs_token and is_same(question.text("token"), self._token)
        if not has_token and self._failures.are_too_many(user):
            raise ConsoleError(429, "too many logins have failed; try again in a few seconds")
        if needs_token and not has_token:
            self._failures.note(user)
            raise ConsoleError(401, "the token is wrong: the server's start message has it")
        account = None
        if not needs_token:
            account = self._entry.account(self._mechanism(question), user, question.text("password"))
        admin = self._entry.admin(account)
        try:
            with _errors():
                cluster.about(admin)
            made = self._sessions.add(user, admin)
        except TooManySessionsError as error:
            admin.close()
            raise ConsoleError(503, str(error)) from error
        except ConsoleError as error:
            admin.close()
            if error.status == 401:
                self._failures.note(user)
            raise
        return Answer({"user": user, "csrf": made.csrf}, cookie=made.key)

    def _mechanism(self, question: Question) -> str:
        with _errors():
            offered = self._entry.mechanisms()
        if not offered:
            raise ConsoleError(501, "the listener has no mechanism that the console has: PLAIN or SCRAM")
        wanted = question.body.get("mechanism") or offered[0]
        if wanted not in offered:
            raise ConsoleError(400, f"mechanism must be one of {', '.join(offered)}")
        return str(wanted)

    # ---- the server itself

    def _about(self, session: Session, right: str) -> dict[str, Any]:
        """Return what DescribeCluster says. Raises ConsoleError if the user has not the right."""
        now_ns = self._services.clock.monotonic_ns()
        if session.about is None or now_ns - session.about_ns > _ABOUT_NS:
            session.about, session.about_ns = cluster.about(session.admin), now_ns
        if not self._entry.knows_rights:
            message = "the listener of the console has no authorizer, which would say who may see the server"
            raise ConsoleError(403, message, "CLUSTER_AUTHORIZATION_FAILED")
        if not session.about[right]:
            message = f"this needs the right {right.removeprefix('may_').title()} on the cluster"
            raise ConsoleError(403, message, "CLUSTER_AUTHORIZATION_FAILED")
        return session.about

    def _server(self, session: Session) -> Any:
        return {"cluster": self._about(session, "may_describe"), **server_view.overview(self._services)}

    def _connections(self, session: Session) -> Any:
        self._about(session, "may_describe")
        return server_view.connections(self._services)

    def _close_connection(self, session: Session, question: Question) -> None:
        name = question.text("id")
        detail = f"{clipped(name, 200)} by {clipped(session.user, 200)} in the console"
        try:
            self._about(session, "may_alter")
        except ConsoleError:
            self._services.emit_admin_event("connection_closed", detail, failed=True)
            raise
        problem = server_view.close(self._services, name)
        if problem:
            raise ConsoleError(409, problem)
        self._services.emit_admin_event("connection_closed", detail)

    # ---- topics

    def _records(self, session: Session, question: Question) -> Any:
        return records_of(
            session.admin,
            _named(question),
            question.number("partition", 0, _MOST_PARTITION),
            offset=question.number("offset", -1),
            timestamp_ms=question.number("timestamp_ms", -1),
            limit=question.number("limit", 50),
        )

    def _create_topic(self, session: Session, question: Question) -> None:
        partitions = question.body.get("partitions", 1)
        if not isinstance(partitions, int) or not 0 < partitions < 1 << 31:
            raise ConsoleError(400, "partitions must be a number above 0")
        session.admin.create_topic(question.text("name"), partitions, replication_factor=-1)


def _named(question: Question) -> str:
    """Return the name in the query; that of a group may be empty. Raises ConsoleError."""
    name = question.query.get("name")
    if name is None or not _is_unicode(name):
        raise ConsoleError(400, "the query needs a name")
    return name


def _is_unicode(text: str) -> bool:
    """Return False for a text that has half of a surrogate pair, which no request can carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Turn what connections and calls raise into ConsoleError."""
    try:
        yield
    except LoginError as error:
        raise ConsoleError(401, str(error)) from error
    except KafkaError as error:
        name = error.error_code.name
        raise ConsoleError(403 if name.endswith("AUTHORIZATION_FAILED") else 409, str(error), name) from error
    except ssl.SSLError as error:
        raise ConsoleError(502, f"TLS with the listener failed, see [console] ca_file: {error.reason}") from error
    except (OSError, EOFError) as error:
        raise ConsoleError(502, f"no answer: {error or type(error).__name__}") from error
    except (ValueError, StructError) as error:
        raise ConsoleError(400, f"the request cannot be sent: {error}") from error
