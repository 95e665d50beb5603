"""Where Spark finds itself, so that its Python workers start from compiled modules.

Spark puts `python/lib/pyspark.zip` of its home before all else on each worker's path. Nothing in
that archive is compiled: every process of a query would compile PySpark anew, a second each. The
home that this module makes is PySpark's own without that folder, so workers import the package
that is installed, as the driver does.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from holdfast.pipelines.java import cache_folder

LINKED: Final = ("bin", "conf", "jars", "sbin")
OLDEST: Final = (4, 2)  # the first one in which a Python source is asked for limits
_VERSION: Final = re.compile(r"__version__\b.*?[\"'](\d+)\.(\d+)")
_CORE: Final = re.compile(r"spark-core_[\d.]+-(\d+)\.(\d+)")


class SparkHomeError(RuntimeError):
    """No Spark that can be started from here. The message says what to install or to set."""


def spark_home(environment: Mapping[str, str] | None = None, *, cache: Path | None = None) -> Path:
    """Return the SPARK_HOME that Spark is to be given: the user's own where one is set.

    `environment` stands for the process's own, `cache` for the folder where the home is made.
    SparkHomeError: there is no PySpark, it is too old, or the home is of another version.
    """
    environment = os.environ if environment is None else environment
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise SparkHomeError("PySpark is not installed: pip install 'holdfast[spark]' brings it")
    installed = Path(found.origin).parent
    version = _version(_VERSION, _text(installed / "version.py"))
    if version is not None and version < OLDEST:
        raise SparkHomeError(
            f"{installed}: PySpark {_dotted(version)} is too old, {_dotted(OLDEST)} is needed: "
            "pip install --upgrade 'holdfast[spark]'"
        )
    named = environment.get("SPARK_HOME")
    if named:
        _refuse_other(Path(named), version)
        return Path(named)
    cache = cache_folder(environment) if cache is None else cache
    home = cache / f"spark-{hashlib.sha256(str(installed).encode()).hexdigest()[:12]}"
    with suppress(OSError):
        if not home.exists():
            _link(installed, home)
    return home if home.exists() else installed  # slower, where nothing can be written


def _refuse_other(home: Path, version: tuple[int, int] | None) -> None:
    """SparkHomeError unless a home that the user has set is a Spark of this version."""
    if not (home / "bin" / "spark-submit").exists():
        raise SparkHomeError(
            f"SPARK_HOME: {home} has no bin/spark-submit; unset it, and PySpark's own Spark is used"
        )
    there = _version(_CORE, " ".join(jar.name for jar in (home / "jars").glob("spark-core_*.jar")))
    if None not in {version, there} and version != there:
        raise SparkHomeError(
            f"SPARK_HOME: {home} is Spark {_dotted(there)}, and PySpark is {_dotted(version)}: "
            "install that version of PySpark; or unset SPARK_HOME, and PySpark's own is used"
        )


def _version(pattern: re.Pattern[str], text: str) -> tuple[int, int] | None:
    found = pattern.search(text)
    return None if found is None else (int(found[1]), int(found[2]))


def _dotted(version: tuple[int, int] | None) -> str:
    return ".".join(map(str, version or ()))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _link(installed: Path, home: Path) -> None:
    """Make it whole or not at all; who comes second keeps what the first one made."""
    fresh = home.with_name(f"{home.name}.{os.getpid()}")
    fresh.mkdir(parents=True)
    for name in LINKED:
        (fresh / name).symlink_to(installed / name)
    try:
        fresh.rename(home)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
