"""Runs scripts in a real Chromium, if the machine has one."""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
from html import unescape

import pytest


def chromium(*arguments, timeout_s=120):
    program = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("chromium is not installed")
        pytest.skip("chromium is not installed")
    command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *arguments]
    return subprocess.run(command, capture_output=True, timeout=timeout_s, check=True).stdout


def seen_by(page, script, folder, *arguments, width_px=1280):
    """Return what a script says about a page in Chromium.

    The script sets `seen`, which becomes JSON. The test fails if any script fails.
    """
    early = "let seen; const errors = []; for (const kind of ['error', 'securitypolicyviolation']) "
    early += "addEventListener(kind, event => errors.push(event.message || event.violatedDirective));"
    late = f"{script}\ndocument.body.dataset.seen = JSON.stringify([seen, errors]);"
    text = page.read_text(encoding="utf-8").replace("<style>", f"<script>{early}</script><style>", 1)
    text = text.replace("</body>", f"<script>{late}</script></body>")
    # The page's own script must still match the hash in its policy.
    digests = (base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in (early, late))
    text = text.replace("script-src ", "script-src " + "".join(f"'sha256-{digest}' " for digest in digests), 1)
    copy = folder / "with-script.html"
    copy.write_text(text, encoding="utf-8")
    # Chromium's windows cannot be as narrow as a phone, but a frame can.
    frame = folder / "frame.html"
    loaded = "document.body.dataset.seen = this.contentDocument.body.dataset.seen"
    frame.write_text(
        f'<body><iframe src="{copy.name}" width="{width_px}" height="800" style="border:0" onload="{loaded}">'
    )
    shown = chromium("--dump-dom", "--allow-file-access-from-files", *arguments, frame.as_uri()).decode()
    seen, errors = json.loads(unescape(re.search(r'data-seen="([^"]*)"', shown)[1]))
    assert errors == []
    return seen
