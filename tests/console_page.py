"""The console's page in Chromium: a script clicks in it, reads it, and may break its stream."""

import http.client
import http.server
import json
import threading

from tests.spark.browser import chromium

LIGHT, DARK = "--blink-settings=preferredColorScheme=1", "--blink-settings=preferredColorScheme=0"
# Chromium ends when the page has loaded, with the image that is there once the script has said something.
_FRAME = """<!doctype html><link rel="icon" href="data:,"><body style="margin:0"><img src="/said.png" hidden>
<iframe id="console" src="/" width="%(width_px)s" height="%(height_px)s" style="border:0"></iframe><script>
const frame = document.getElementById("console");
const page = () => frame.contentDocument;
const all = (query) => [...page().querySelectorAll(query)];
const one = (query) => page().querySelector(query);
const button = (text) => all("button").find((each) => each.textContent === text);
const heading = () => one("h1")?.textContent;
async function until(holds) {
  for (let turn = 0; turn < 1200; turn++) {
    const found = holds();
    if (found) return found;
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`never ${holds}; the page has ${page().body.innerText}`);
}
async function go(view, title) {
  one("#main").replaceChildren();
  frame.contentWindow.location.hash = view;
  await until(() => title ? heading() === title : heading());
}
async function logIn() {
  await until(() => one(".login form"));
  one(".login input").value = "%(token)s";
  button("Log in").click();
  await until(() => one("#user button"));
}
onload = null;
(async () => {
  let seen;
  try {
    await until(() => page()?.getElementById("main"));
    frame.contentWindow.confirm = () => true;
    seen = await (async () => { %(script)s })();
  } catch (error) {
    seen = String(error);
  }
  await fetch("/said", { method: "POST", body: JSON.stringify(seen ?? null) });
})();
</script>"""


def walk(console, script, *arguments, width_px=1280, height_px=800, scripts=()):
    """Return what a script says of the console at this address, and what Chromium prints.

    `scripts` are added to the page itself. `fetch("/break")` ends the page's streams, and refuses others until
    `fetch("/mend")`.
    """
    address, _, token = console.removeprefix("http://").partition("/#token=")
    said, broken, seen = threading.Event(), threading.Event(), []
    values = {"width_px": width_px, "height_px": height_px, "token": token, "script": script}
    own = {"/walk.html": ("text/html; charset=utf-8", (_FRAME % values).encode())}
    own |= {f"/own{number}.js": ("text/javascript", each) for number, each in enumerate(scripts)}
    added = b"".join(f'<script src="{path}"></script>'.encode() for path in own if path.startswith("/own"))

    class Copy(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/said.png":
                said.wait()
                self.answer(200, {"Content-Type": "image/png"}, b"")
            elif self.path in ("/break", "/mend"):
                (broken.set if self.path == "/break" else broken.clear)()
                self.answer(200, {}, b"")
            elif self.path in own:
                self.answer(200, {"Content-Type": own[self.path][0]}, own[self.path][1])
            else:
                self.pass_on(None)

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/said":
                seen.append(json.loads(body))
                said.set()
                self.answer(200, {}, b"")
            else:
                self.pass_on(body)

        def pass_on(self, body):
            is_stream = self.path.startswith("/api/events")
            if is_stream and broken.is_set():
                self.close_connection = True
                return
            connection = http.client.HTTPConnection(address, timeout=60)
            kept = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
            connection.request(self.command, self.path, body, kept)
            answer = connection.getresponse()
            # Without the headers that forbid frames.
            headers = {name: answer.headers[name] for name in ("Content-Type", "Set-Cookie") if name in answer.headers}
            if is_stream and answer.status == 200:
                self.stream(answer, headers)
            else:
                content = answer.read()
                if self.path == "/":
                    content = content.replace(b"</head>", added + b"</head>")
                self.answer(answer.status, headers, content)
            connection.close()

        def stream(self, answer, headers):
            self.send_response(200)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            while not (broken.is_set() or said.is_set()) and (content := answer.read1(65536)):
                self.wfile.write(content)

        def answer(self, status, headers, content):
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_arguments):
            """Say nothing."""

    copy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Copy)
    copy.daemon_threads = True
    copy.handle_error = lambda *_arguments: None
    thread = threading.Thread(target=copy.serve_forever)
    thread.start()
    try:
        printed = chromium(*arguments, f"http://127.0.0.1:{copy.server_port}/walk.html", timeout_s=500)
    finally:
        said.set()
        copy.shutdown()
        thread.join()
        copy.server_close()
    assert not isinstance(seen[0], str), seen[0]
    return seen[0], printed
