"""The time from an empty folder to a first test in Go, Java or Node: `python -m bench.first_produce_languages NAME`.

The test is the program in the README of the language's package, and produces. As in `bench.first_produce` a folder of
wheels stands in for a package index. A run of the same project fills Maven's repository before the time runs. The time
runs from `python -m venv` until the test has passed. Go starts with an empty build cache.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.first_produce import ROOT, Taken, fill_index, install, print_each, run, timed

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>first</groupId><artifactId>first</artifactId><version>1</version>
<properties><maven.compiler.release>11</maven.compiler.release></properties>
<dependencies>
<dependency><groupId>klamm</groupId><artifactId>klamm-junit</artifactId><version>0.1.0</version><scope>test</scope></dependency>
<dependency><groupId>org.junit.jupiter</groupId><artifactId>junit-jupiter</artifactId><version>5.12.2</version></dependency>
</dependencies>
<build><plugins>
<plugin><artifactId>maven-compiler-plugin</artifactId><version>3.14.0</version></plugin>
<plugin><artifactId>maven-surefire-plugin</artifactId><version>3.5.3</version></plugin>
</plugins></build>
</project>"""
_MAVEN = ("mvn", "-q", "-B", "-Dmaven.repo.local={folder}/repository")


class Project(NamedTuple):
    """The files beside the test, the path of the test, and the commands before and within the measured time."""

    tool: str
    files: dict[str, str]
    test: str
    prepare: tuple[tuple[str, ...], ...]
    commands: tuple[tuple[str, ...], ...]


PROJECTS = {
    "go": Project(
        "go",
        {
            "go.mod": "module first\n\ngo 1.24\n\nrequire klamm.example/klamm v0.1.0\n\n"
            f"replace klamm.example/klamm => {ROOT}/clients/go\n"
        },
        "first_test.go",
        (),
        (("go", "test", "./..."),),
    ),
    "java": Project(
        "mvn",
        {"pom.xml": _POM},
        "src/test/java/FirstTest.java",
        ((*_MAVEN, "-f", "{folder}/java/pom.xml", "install", "-DskipTests"), (*_MAVEN, "test")),
        ((*_MAVEN, "-o", "test"),),
    ),
    "node": Project(
        "npm",
        {"package.json": f'{{"type": "module", "dependencies": {{"klamm": "file:{ROOT}/clients/node"}}}}'},
        "first.test.js",
        (),
        (("npm", "install", "--no-audit", "--no-fund", "--offline"), ("node", "--test")),
    ),
}


def first_test(language: str) -> str:
    """Return the program in the README of a language's package."""
    readme = (ROOT / "clients" / language / "README.md").read_text("utf-8")
    (block, *_) = re.findall(r"^```\w+\n(.*?)^```", readme, re.M | re.S)
    return str(block)


def _write(project: Project, language: str, work: Path) -> None:
    for name, content in {**project.files, project.test: first_test(language)}.items():
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


def measure(language: str, folder: Path, wheel: Path | None = None) -> Taken:
    """Measure in an empty folder, with klamm's wheel or one that is built now. Raises RuntimeError."""
    project = PROJECTS[language]
    with_pip, index = fill_index(sys.executable, folder, wheel)

    def run_all(commands: tuple[tuple[str, ...], ...], work: Path, programs: Path) -> None:
        _write(project, language, work)
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        own = ("env", "-u", "KLAMM", f"PATH={path}", f"GOCACHE={folder}/go-build")
        for command in commands:
            run(*own, *(word.format(folder=folder) for word in command), cwd=work)

    if project.prepare:
        install(with_pip, index, "klamm")
        shutil.copytree(ROOT / "clients" / "java", folder / "java", ignore=shutil.ignore_patterns("target"))
        run_all(project.prepare, folder / "rehearsal", with_pip.parent)
    last = partial(run_all, project.commands, folder / "work")
    return timed(sys.executable, folder, index, ("klamm",), last)


if __name__ == "__main__":
    print_each(sys.argv[1:] or PROJECTS, measure)
