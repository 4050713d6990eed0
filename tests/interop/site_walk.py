"""Walks through a built site in Chromium as a reader does: by the links that a page shows, and by the search."""

import functools
import http.server
import json
import threading
from pathlib import Path

from tests.spark.browser import chromium

DRIVER = Path(__file__).with_suffix(".js")


def walk(folder, start, script, width_px=1280):
    """Run a script on the site in a folder, from a page on.

    Return its result. site_walk.js has the script's functions.
    """
    # Chromium ends when the page has loaded, together with an image that loads once the script has a result.
    page = f"""<!doctype html><link rel="icon" href="data:,"><body><img src="/said.png">
<iframe id="site" src="{start}" width="{width_px}" height="800" style="border:0"></iframe>
<script>{DRIVER.read_text(encoding="utf-8")}
run(async () => {{ {script} }});</script>"""
    said, seen = threading.Event(), []

    class Site(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/walk.html":
                self.answer("text/html; charset=utf-8", page.encode())
            elif self.path == "/said.png":
                said.wait()
                self.answer("image/png", b"")
            else:
                super().do_GET()

        def do_POST(self):
            seen.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            said.set()
            self.answer("text/plain", b"")

        def answer(self, kind, content):
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_arguments):
            """Log nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Site, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}/walk.html"
            chromium("--dump-dom", "--window-size=1300,900", address, timeout_s=500)
        finally:
            said.set()
            server.shutdown()
            thread.join()
    assert not isinstance(seen[0], str), seen
    return seen[0]
