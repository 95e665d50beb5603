"""An environment for executors, packed as the how-to says, from what is installed here.

The how-to lets pip fetch the packages; a test copies those of this environment instead.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

ROOT: Final = Path(__file__).resolve().parents[2]
EXTRAS: Final = ("executor", "postgresql")


def pack(folder: Path) -> Path:
    """Make FOLDER/environment, which has no PySpark, and return the archive of it."""
    environment = folder / "environment"
    venv.create(environment, symlinks=True)
    (site,) = environment.glob("lib/python*/site-packages")
    for needed in _needed():
        _copy(needed, site)
    _build(folder / "source", site)
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as file:
        for path in sorted(environment.iterdir()):
            file.add(path, path.name)
    return archive


def _needed() -> Iterator[Distribution]:
    """Yield what the extras need, and what that needs in turn."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"]]
    for extra in EXTRAS:
        lines += project["optional-dependencies"][extra]
    waiting = [Requirement(line) for line in lines]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted = waiting.pop()
        if (wanted.name, frozenset(wanted.extras)) in seen:
            continue
        seen.add((wanted.name, frozenset(wanted.extras)))
        found = distribution(wanted.name)
        yield found
        asked = [{"extra": extra} for extra in ("", *wanted.extras)]
        for line in found.requires or ():
            more = Requirement(line)
            if more.marker is None or any(more.marker.evaluate(each) for each in asked):
                waiting.append(more)


def _copy(found: Distribution, site: Path) -> None:
    for file in found.files or ():
        if ".." in file.parts:
            continue  # a program in bin/
        target = site / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(found.locate_file(file)), target)


def _build(source: Path, site: Path) -> None:
    """Install this project as a package. Built from a copy: nothing is left in the tree."""
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, source / name)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    words = ("install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    subprocess.run(
        [sys.executable, "-m", "pip", *words, "--target", str(site), str(source)], check=True
    )
