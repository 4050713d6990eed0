"""Build the site of docs/: `python -m tools.build_site [FOLDER]`, by default build/site. scripts/docs calls it.

With `--version`, the folder has a site for each version, and the site of this version is added.

Zensical makes HTML of the pages (zensical.toml). The HTML needs no server and loads nothing from other hosts. Before
and after that, this module adds four things: a page below `repository` for each file outside docs/ that a page links
to, pictures for boxes drawn as text, each page's Markdown beside the page, and llms.txt with a list of all pages.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Container, Iterator
from functools import partial
from pathlib import Path

import tomli

from klamm import __version__
from tools.draw import is_drawing, svg

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
ASSETS = {".png", ".css", ".js"}
TABS = re.compile(r"(?:^\*\*[^*\n]+\*\*\n\n```\w+\n(?:.*\n)*?```\n\n?){2,}", re.MULTILINE)
"""Two or more blocks of code, each below a line with bold words, e.g. the names of languages."""
TAB = re.compile(r"^\*\*([^*\n]+)\*\*\n\n(```\w+\n(?:.*\n)*?```)\n", re.MULTILINE)
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<=\]\()(?![a-z]+:)([^)#\s]+)((?:#[^)]*)?)(?=\))")
FILE_NAME = re.compile(r"(?<=\[)[\w./-]+\.md(?=\]\((?![a-z]+:)([^)#\s]+))")
"""The text of a link, if it is the name of the page's file."""
LANGUAGES = {"py": "python", "go": "go", "java": "java", "json": "json", "ipynb": "json", "toml": "toml", "js": "js"}
SHIM = "https://unpkg.com/iframe-worker/shim"
"""A script of another host that Zensical's pages load if they are opened as files. The site has a copy."""
ALTERNATE = '<link rel="alternate" type="text/markdown" href="{}"></head>'
CELL = re.compile(r"<td.*?</td>", re.DOTALL)
NAME = re.compile(r"(?<=<code>)[^<]+(?=</code>)")
VERSION_OPTION = "--version"
LATEST = "latest"
SELECTOR = '\n[project.extra.version]\nprovider = "mike"\n'
"""The setting for the theme's selector of versions. It reads `versions.json` in the folder above the site, in Mike's
form.
"""
SITEMAP = '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{}</urlset>\n'
PLACE = "<url><loc>https://klamm.example/{}</loc></url>"
"""With these, the selector of versions stays on a page if the other version has this page too. It ignores the host."""
REDIRECT = f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>klamm</title>
<meta http-equiv="refresh" content="0; url={LATEST}/index.html">
<a href="{LATEST}/index.html">klamm</a></html>
"""
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"
"""The head of pages with code, which keeps them out of the search. Otherwise they would hide the other results."""


def main(arguments: list[str]) -> int:
    """Build into the folder that the arguments name, and print the page to open."""
    site = next((Path(one) for one in arguments if one != VERSION_OPTION), ROOT / "build" / "site")
    if VERSION_OPTION in arguments:
        add_version(site.resolve(), __version__)
    else:
        build(site.resolve())
    print(site / "index.html")
    return 0


def add_version(folder: Path, version: str) -> None:
    """Build the site of a version into its folder. `latest` is a copy of the newest version in the folder."""
    site = folder / version
    build(site, SELECTOR)
    places = ["", *(page.relative_to(site).as_posix() for page in sorted(site.rglob("*.html")))]
    (site / "sitemap.xml").write_text(SITEMAP.format("".join(map(PLACE.format, places))), encoding="utf-8")
    newest, *others = sorted((path.parent.name for path in folder.glob("[0-9]*/index.html")), key=order, reverse=True)
    if newest == version:
        shutil.rmtree(folder / LATEST, ignore_errors=True)
        shutil.copytree(site, folder / LATEST)
    listed = [{"version": newest, "title": newest, "aliases": [LATEST]}]
    listed += [{"version": one, "title": one, "aliases": []} for one in others]
    (folder / "versions.json").write_text(json.dumps(listed, indent=2) + "\n", encoding="utf-8")
    (folder / "index.html").write_text(REDIRECT, encoding="utf-8")


def order(version: str) -> tuple[list[int], bool, str]:
    """Return the key that sorts versions: 1.0rc1 comes before 1.0, and 1.9 before 1.10."""
    numbers, rest = re.fullmatch(r"([0-9.]*[0-9])(.*)", version).groups()  # type: ignore[union-attr]
    return [int(number) for number in numbers.split(".")], not rest, rest


def build(site: Path, more: str = "") -> None:
    """Replace the folder by the site. `more` is added to Zensical's settings. Raise RuntimeError if Zensical has a
    warning.
    """
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        (work / "zensical.toml").write_text(
            (ROOT / "zensical.toml").read_text(encoding="utf-8") + more, encoding="utf-8"
        )
        pages = gather(work / "docs")
        done = subprocess.run(
            [sys.executable, "-m", "zensical", "build", "--strict", "-f", work / "zensical.toml"],
            cwd=work,
            env={**os.environ, "NO_COLOR": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stdout)
        for page in (work / "site").rglob("*.html"):
            page.write_text(finished(page, work / "site", pages), encoding="utf-8")
        for place, text in pages.items():
            (work / "site" / place).write_text(text, encoding="utf-8")
        (work / "site" / "llms.txt").write_text(llms_text(pages), encoding="utf-8")
        shutil.rmtree(site, ignore_errors=True)
        shutil.copytree(work / "site", site)


def finished(page: Path, site: Path, pages: Container[str]) -> str:
    """Return a finished page: it names its Markdown, loads nothing from other hosts, and may break long names in
    tables.
    """
    shim = os.path.relpath(site / "site" / "iframe-worker.js", page.parent)
    markdown = "README.md" if page.stem == "index" else f"{page.stem}.md"
    text = page.read_text(encoding="utf-8").replace(SHIM, shim)
    if (page.parent / markdown).relative_to(site).as_posix() in pages:
        text = text.replace("</head>", ALTERNATE.format(markdown), 1)
    return CELL.sub(lambda cell: NAME.sub(lambda name: re.sub(r"(?<=[._/])(?=\w)", "<wbr>", name[0]), cell[0]), text)


def gather(folder: Path) -> dict[str, str]:
    """Write the files for Zensical, and return the Markdown of each page by its path in the site."""
    pages: dict[str, str] = {}
    waiting = sorted(path for path in DOCS.rglob("*") if path.is_file())
    while waiting:
        source = waiting.pop()
        target = folder / place_of(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix in ASSETS:
            shutil.copy(source, target)
        elif place_of(source) not in pages:
            text = markdown_of(source)
            waiting += targets(source, text)
            text = FILE_NAME.sub(partial(title_of, source=source), text)
            text = pages[place_of(source)] = LINK.sub(partial(moved, source=source), text)
            unsearched = UNSEARCHED if source.suffix != ".md" else ""
            target.write_text(unsearched + TABS.sub(tabbed, FENCE.sub(drawn, text)), encoding="utf-8")
    return pages


def place_of(source: Path) -> str:
    """Return the path that a file or folder of the repository has in the site."""
    if source.is_dir():
        source = source / "README.md"
    place = source.relative_to(DOCS) if DOCS in source.parents else Path("repository", source.relative_to(ROOT))
    return place.as_posix() + ("" if source.suffix in {".md", *ASSETS} else ".md")


def markdown_of(source: Path) -> str:
    """Return the Markdown of a source: a page as it is, a folder as a list, and a file of code as a block."""
    if source.suffix == ".md" and source.is_file():
        return source.read_text(encoding="utf-8")
    title = f"# {source.relative_to(ROOT).as_posix()}\n\n"
    if source.is_dir():
        return title + "".join(f"- [{path.name}]({path.name})\n" for path in sorted(source.iterdir()) if is_shown(path))
    return f"{title}````{LANGUAGES.get(source.suffix[1:], 'text')}\n{source.read_text(encoding='utf-8')}\n````\n"


def is_shown(path: Path) -> bool:
    """Return False for files and folders that builds and tools leave behind."""
    return not path.name.startswith((".", "__")) and path.name not in {"build", "target", "node_modules"}


def outside_fences(text: str) -> str:
    """Return the text without its blocks of code."""
    return FENCE.sub("", text)


def targets(source: Path, text: str) -> Iterator[Path]:
    """Yield the files and folders of the repository that a page links to."""
    if source.suffix == ".md" or source.is_dir():
        for link in LINK.finditer(outside_fences(text)):
            yield target_of(link, source)


def target_of(link: re.Match[str], source: Path) -> Path:
    """Return the file or folder to which a link leads. For a folder with a README, return the README."""
    target = ((source if source.is_dir() else source.parent) / link[1]).resolve()
    return target / "README.md" if (target / "README.md").exists() else target


def title_of(name: re.Match[str], source: Path) -> str:
    """Return the title of a page, up to a colon, in place of the name of its file."""
    target = source.parent / name[1]
    return target.read_text("utf-8").partition("\n")[0].removeprefix("# ").partition(":")[0]


def moved(link: re.Match[str], source: Path) -> str:
    """Return a page's link as the path that its target has in the site."""
    target = target_of(link, source)
    if not target.exists():
        return link[0]
    return os.path.relpath(place_of(target), Path(place_of(source)).parent) + link[2]


def drawn(block: re.Match[str]) -> str:
    """Return a block as a picture if it is drawn with boxes and arrows; otherwise return it as it is."""
    return f'<div class="drawing">{svg(block[2])}</div>' if is_drawing(block[2]) else block[0]


def tabbed(blocks: re.Match[str]) -> str:
    """Return blocks as the tabs of one block."""
    tabs = (f'=== "{name}"\n\n{textwrap.indent(block, "    ")}\n\n' for name, block in TAB.findall(blocks[0]))
    return "".join(tabs)


def llms_text(pages: dict[str, str]) -> str:
    """Return llms.txt: the pages in the order of the navigation, each with its first sentence."""
    project = tomli.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    lines = [f"# {project['site_name']}", "", f"> {project['site_description']}"]
    for section in project["nav"]:
        for name, places in section.items():
            lines += ["", f"## {name}", "", *(entry(place, pages[place]) for place in places)]
    return "\n".join(lines) + "\n"


def entry(place: str, text: str) -> str:
    """Return a page's line in llms.txt."""
    title, _, rest = text.partition("\n")
    first = next((one for one in outside_fences(rest).split("\n\n") if one.strip() and one.lstrip()[0].isalpha()), "")
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(first.split()))
    return f"- [{title.lstrip('# ')}]({place}): {re.split(r'(?<=[.:]) ', plain)[0]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
