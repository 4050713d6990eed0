"""The console's page in a browser."""

import json

from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.init_producer_id import InitProducerIdRequest
from klamm_console.extension import Console
from tests.console_page import walk
from tests.unit.console.conftest import CONSOLE, HOSTILE, Browser, commit
from tests.waiting import wait_until


def test_the_page_shows_the_overview_live(server):
    (extension,) = server.server.extensions
    script = """
      await logIn();
      await until(() => one("#live").textContent === "Live");
      const before = one(".stages").textContent;
      await until(() => one(".stages").textContent !== before);
      return [all("b").map((each) => each.textContent), all(".error").map((each) => each.textContent)];
    """
    (titles, errors), _ = walk(extension.url, script, "--dump-dom")
    assert {"Accept", "Processors", "Queue", "Handlers", "Disk"} <= set(titles)
    assert errors == []


def test_the_page_says_when_it_is_not_live_and_connects_again(server):
    (extension,) = server.server.extensions
    script = """
      const live = (text) => until(() => one("#live").textContent.startsWith(text));
      await logIn();
      await live("Live");
      await fetch("/break");
      await live("Not live: ");
      // Without a stream, the page asks.
      one("#main").replaceChildren();
      await until(() => one(".stages"));
      const shown = [one("#live").className, all(".stages b").length];
      await fetch("/mend");
      await live("Live");
      await go("topics", "Topics");
      return [...shown, one("#live").className, one("#live").textContent];
    """
    assert walk(extension.url, script, "--dump-dom")[0] == ["error", 8, "good", ""]


def test_a_page_whose_session_has_ended_asks_for_the_login(server):
    (extension,) = server.server.extensions
    script = """
      await logIn();
      await until(() => one("#live").textContent === "Live");
      await fetch("/api/logout", { method: "POST", body: "{}", headers: {
        "Content-Type": "application/json", "X-Klamm-Csrf": frame.contentWindow.sessionStorage.getItem("csrf") } });
      await until(() => one(".login form"));
      return [one("#live").textContent, all("#nav:not([hidden])").length];
    """
    assert walk(extension.url, script, "--dump-dom")[0] == ["", 0]


def test_the_page_changes_quotas_users_and_offsets(server):
    (extension,) = server.server.extensions
    server.create_topic("orders")
    server.produce("orders", "a", "b")
    script = """
      const fill = (form, values) => {
        for (const [name, value] of Object.entries(values)) form.elements[name].value = value;
        form.querySelector("button").click();
      };
      const cells = () => all("tbody tr").map((row) => [...row.cells].map((each) => each.innerText.trim()));
      const row = (text) => until(() => cells().find((each) => each[0] === text));
      await logIn();
      await go("quotas", "Quotas");
      fill(one("form"), { kind: "user and client id", user: "erin", key: "producer_byte_rate", value: "1048576" });
      const quota = await row("user erin, client-id (default)");
      button("Remove").click();
      await until(() => !button("Remove"));
      await go("users", "Users");
      fill(one("form"), { user: "erin", password: "secret" });
      const user = await row("erin");
      const leftPassword = one("form").elements.password.value;
      button("Delete").click();
      await until(() => !button("Delete"));
      await go("groups/readers", "readers");
      fill(one("form"), { topic: "orders", to: "offset", offset: "1" });
      const offset = await row("orders");
      await go("groups", "Groups");
      const group = await row("readers");
      await go("groups/readers", "readers");
      fill(one("form"), { topic: "none", to: "latest" });
      const refused = await until(() => one("#status").textContent);
      button("Delete").click();
      await until(() => !button("Delete"));
      return [quota, user, leftPassword, offset, group, refused];
    """
    quota, user, left, offset, group, refused = walk(extension.url, script, "--dump-dom")[0]
    assert quota[1:3] == ["producer_byte_rate", "1,048,576"]
    assert (user[1:3], left) == (["SCRAM-SHA-512", "8,192"], "")
    assert offset[:5] == ["orders", "0", "1", "2", "1"]
    assert (group[0], group[-1]) == ("readers", "1")
    assert "none" in refused


def test_hostile_names_are_texts_in_every_view(tmp_path):
    settings = ['listeners.default.observers=["audit", "recording"]', f"listeners.default.audit.spool={tmp_path}"]
    settings += ['listeners.default.filters=["faults"]', "listeners.default.authorizer=acl"]
    settings += ['listeners.default.acl.super_users=["User:ANONYMOUS"]']
    with EmbeddedServer([*CONSOLE, *settings]) as running, RawClient(running.address(), client_id=HOSTILE) as client:
        (extension,) = [each for each in running.server.extensions if isinstance(each, Console)]
        running.create_topic("orders")
        running.produce("orders", HOSTILE, key=HOSTILE, headers=[(HOSTILE, HOSTILE.encode())])
        commit(running, HOSTILE, "orders", 0)
        client.call(InitProducerIdRequest(HOSTILE, 60_000), 4)
        browser = Browser(running)
        browser.log_in()
        rule = {"resource": "TOPIC", "pattern": "LITERAL", "host": "*", "operation": "READ", "permission": "ALLOW"}
        for act, body in (
            ("create_acl", {**rule, "name": HOSTILE, "principal": f"User:{HOSTILE}"}),
            ("set_password", {"user": HOSTILE, "mechanism": "SCRAM-SHA-256", "password": "secret"}),
            ("alter_quota", {"user": HOSTILE, "key": "producer_byte_rate", "value": 1}),
            ("add_fault", {"kind": "disconnect", "topic": HOSTILE}),
        ):
            assert browser(act, body) == (200, {})
        wait_until(lambda: any("onerror" in str(row) for row in browser("audit")[1]))
        shown, _ = walk(extension.url, HOSTILE_WALK % json.dumps(HOSTILE), "--dump-dom")
    assert shown.pop("made") == []
    assert shown.pop("alerts") == 0
    without = {name for name, has in shown.items() if not has}
    # These views name nothing that a client has chosen, or show it later, or answer only what is asked.
    assert without <= {"overview", "topics", "access", "findings", "test_kit"}


HOSTILE_WALK = """
  const hostile = %s;
  const seen = { alerts: 0, made: [] };
  frame.contentWindow.alert = () => { seen.alerts += 1; };
  await logIn();
  const views = all("#nav a").map((each) => each.hash.slice(1));
  views.push("topics/orders", `groups/${encodeURIComponent(hostile)}`);
  const has = () => page().body.textContent.includes(hostile);
  for (const view of views) {
    await go(view);
    if (!["overview", "topics", "access", "findings", "test_kit"].includes(view)) await until(has);
    seen[view] = has();
    const made = all("img, iframe, svg, object, embed, script:not([src])");
    seen.made.push(...made.map((each) => `${view}: ${each.outerHTML}`));
  }
  return seen;
"""
