"""The console's page in a browser."""

from tests.console_page import walk


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
