"""axe finds no serious accessibility problems in the console's pages, light and dark, on phone and desktop."""

import http.client
import http.server
import json
import re
import shutil
import subprocess
import tarfile
import threading
from html import unescape

import pytest

from klamm.testing import EmbeddedServer, MovingClock
from tests.spark.browser import chromium

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
AXE = "axe-core@4.10.3"
LIGHT, DARK = "--blink-settings=preferredColorScheme=1", "--blink-settings=preferredColorScheme=0"
VIEWS = [
    "overview", "connections", "topics", "topics/orders", "groups", "groups/readers", "transactions", "quotas", "acls",
    "access", "audit", "test_kit",
]  # fmt: skip
DRIVER = """
const views = VIEWS;
const wait = ms => new Promise(done => setTimeout(done, ms));
async function until(what) { for (let n = 0; n < 300; n++) { if (what()) return; await wait(100); } throw "no page"; }
addEventListener("load", async () => {
  const seen = {};
  const main = document.getElementById("main");
  async function look(name) {
    const found = await axe.run(document, { resultTypes: ["violations"] });
    seen[name] = found.violations.filter(one => ["serious", "critical"].includes(one.impact))
      .map(one => one.id + ": " + one.nodes.map(node => node.html).join(" "));
  }
  try {
    await until(() => document.querySelector(".login form"));
    await look("login");
    document.querySelector(".login input").value = "TOKEN";
    document.querySelector(".login button").click();
    await until(() => document.querySelector("#user button"));
    for (const view of views) {
      main.replaceChildren();
      location.hash = view;
      await until(() => main.querySelector("h1"));
      if (view === "access") {
        main.querySelector("form button").click();
        await until(() => main.querySelector("table"));
      }
      await look(view);
    }
  } catch (error) { seen.error = [String(error)]; }
  parent.document.body.dataset.seen = JSON.stringify(seen);
});
"""


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("axe")
    packed = subprocess.run(
        ["npm", "pack", AXE], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )  # fmt: skip
    if packed.returncode:
        pytest.skip(f"npm cannot get {AXE}: {packed.stderr[-500:]}")
    with tarfile.open(next(folder.glob("*.tgz"))) as files:
        return files.extractfile("package/axe.min.js").read()


@pytest.fixture(scope="module")
def console():
    settings = ['server.extensions=["console"]', "console.bind=127.0.0.1:0", 'listeners.default.filters=["faults"]']
    settings.append('listeners.default.observers=["recording"]')
    with EmbeddedServer(settings, nodes=2, clock=MovingClock()) as running:
        running.create_topic("orders")
        running.produce("orders", "one", '{"two": 2}', b"\xff\0", key="k", headers=[("h", b"v")])
        (extension,) = running.server.extensions
        yield extension.url


@pytest.fixture
def page_with_axe(axe, console):
    """Yield the address of a copy of the console. Its page has axe and a driver, and may be framed."""
    address, _, token = console.removeprefix("http://").partition("/#token=")
    driver = DRIVER.replace("VIEWS", json.dumps(VIEWS)).replace("TOKEN", token)
    own = {"/axe.js": axe, "/driver.js": driver.encode()}

    class Copy(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            path = self.path.partition("?")[0]
            if path.startswith("/frame"):
                width = path.removeprefix("/frame")
                frame = f'<body><iframe src="/" width="{width}" height="800" style="border:0"></iframe>'
                self.answer(200, "text/html", frame.encode(), None)
            elif path in own:
                self.answer(200, "text/javascript", own[path], None)
            else:
                self.pass_on(None)

        def do_POST(self):
            self.pass_on(self.rfile.read(int(self.headers["Content-Length"])))

        def pass_on(self, body):
            connection = http.client.HTTPConnection(address, timeout=60)
            kept = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
            connection.request(self.command, self.path, body, kept)
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            if self.path == "/":
                scripts = b'<script src="/axe.js"></script><script src="/driver.js"></script></head>'
                content = content.replace(b"</head>", scripts)
            self.answer(answer.status, answer.headers["Content-Type"], content, answer.headers["Set-Cookie"])

        def answer(self, status, kind, content, cookie):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            if cookie:
                self.send_header("Set-Cookie", cookie)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_arguments):
            """Log nothing."""

    copy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Copy)
    thread = threading.Thread(target=copy.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{copy.server_port}"
    copy.shutdown()
    thread.join()
    copy.server_close()


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("width_px", [390, 1280])
def test_axe_has_no_serious_findings(page_with_axe, scheme, width_px):
    shown = chromium("--dump-dom", "--virtual-time-budget=60000", scheme, f"{page_with_axe}/frame{width_px}").decode()
    seen = json.loads(unescape(re.search(r'data-seen="([^"]*)"', shown)[1]))
    assert seen == dict.fromkeys(["login", *VIEWS], [])
