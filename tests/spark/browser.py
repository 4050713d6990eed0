"""A real Chromium, where there is one."""

import json
import os
import re
import shutil
import subprocess
from html import unescape

import pytest


def chromium(*arguments):
    program = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("chromium is not installed")
        pytest.skip("chromium is not installed")
    command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *arguments]
    return subprocess.run(command, capture_output=True, timeout=120, check=True).stdout


def seen_by(page, script, folder, *arguments):
    """What a script says of a page that Chromium shows; it sets `seen`, which becomes JSON."""
    text = page.read_text().replace("default-src 'none'; ", "default-src 'none'; script-src 'unsafe-inline'; ")
    script = f"<script>let seen;\n{script}\ndocument.body.dataset.seen = JSON.stringify(seen);</script></body>"
    copy = folder / "with-script.html"
    copy.write_text(text.replace("</body>", script))
    shown = chromium("--dump-dom", *arguments, copy.as_uri()).decode()
    return json.loads(unescape(re.search(r'data-seen="([^"]*)"', shown)[1]))
