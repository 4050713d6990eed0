"""The time from an empty folder to a first test in Go, Java or Node: `python -m bench.first_produce_languages NAME`.

The test is the program in the README of the language's package, and produces. As in `bench.first_produce` a folder of
wheels stands in for a package index; Maven's repository is filled before the time runs, by a run of the same project.
The time runs from `python -m venv` until the test has passed. Go begins without a cache of what it built.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench.first_produce import PIP, ROOT, Taken, build_wheel, run

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
    """Files beside the test, where the test goes, and the commands before and within the time."""

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
    prepared = folder / "prepared"
    run(sys.executable, "-m", "venv", prepared, cwd=folder)
    with_pip = prepared / "bin" / "python"
    index = folder / "index"
    index.mkdir()
    wanted = wheel or build_wheel(with_pip, folder)
    run(with_pip, *PIP, "download", "--only-binary=:all:", "--dest", index, wanted, cwd=folder)
    run(with_pip, *PIP, "install", "--no-index", "--find-links", index, "klamm", cwd=folder)
    if project.prepare:
        shutil.copytree(ROOT / "clients" / "java", folder / "java", ignore=shutil.ignore_patterns("target"))
        _run_all(project.prepare, project, language, folder, "rehearsal", prepared)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    venv = folder / "venv"
    run(sys.executable, "-m", "venv", venv, cwd=folder)
    environment_s = time.perf_counter() - began
    run(venv / "bin" / "python", *PIP, "install", "--no-index", "--find-links", index, "klamm", cwd=folder)
    installed_s = time.perf_counter() - began
    _run_all(project.commands, project, language, folder, "work", venv)
    passed_s = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Taken(
        environment_s, installed_s, passed_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    )


def _run_all(
    commands: tuple[tuple[str, ...], ...], project: Project, language: str, folder: Path, name: str, venv: Path
) -> None:
    work = folder / name
    _write(project, language, work)
    path = f"{venv}/bin{os.pathsep}{os.environ['PATH']}"
    own = ("env", "-u", "KLAMM", f"PATH={path}", f"GOCACHE={folder}/go-build")
    for command in commands:
        run(*own, *(word.format(folder=folder) for word in command), cwd=work)


def main() -> None:
    """Print a line for each language."""
    for language in sys.argv[1:] or PROJECTS:
        with tempfile.TemporaryDirectory(prefix="klamm-bench-") as folder:
            taken = measure(language, Path(folder))
        print(
            f"{language}: installed after {taken.installed_s:.1f} s, passed after {taken.passed_s:.1f} s;"
            f" {taken.processor_s:.1f} s of processor time",
            flush=True,
        )


if __name__ == "__main__":
    main()
