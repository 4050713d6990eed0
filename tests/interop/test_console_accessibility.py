"""axe finds no serious accessibility problems in the console's pages, light and dark, on phone and desktop."""

import json
import shutil
import subprocess
import tarfile

import pytest

from klamm.testing import EmbeddedServer, MovingClock
from tests.console_page import DARK, LIGHT, walk

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
AXE = "axe-core@4.10.3"
VIEWS = [
    "overview", "overview/default", "connections", "topics", "topics/orders", "groups", "groups/readers",
    "transactions", "quotas", "users", "acls", "access", "audit", "findings", "test_kit",
]  # fmt: skip
SCRIPT = """
  const seen = {};
  async function look(name) {
    const found = await frame.contentWindow.axe.run(page(), { resultTypes: ["violations"] });
    seen[name] = found.violations.filter((each) => ["serious", "critical"].includes(each.impact))
      .map((each) => `${each.id}: ${each.nodes.map((node) => node.html).join(" ")}`);
  }
  await until(() => one(".login form") && frame.contentWindow.axe);
  await look("login");
  await logIn();
  for (const view of VIEWS) {
    await go(view);
    if (view === "access") {
      button("Ask").click();
      await until(() => one("#main table"));
    }
    await look(view);
  }
  await fetch("/break");
  await go("overview");
  await until(() => one("#live").textContent.startsWith("Not live"));
  await look("not live");
  return seen;
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


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("width_px", [390, 1280])
def test_axe_has_no_serious_findings(axe, console, scheme, width_px):
    script = SCRIPT.replace("VIEWS", json.dumps(VIEWS))
    seen, _ = walk(console, script, "--dump-dom", scheme, width_px=width_px, scripts=[axe])
    assert seen == dict.fromkeys(["login", *VIEWS, "not live"], [])
