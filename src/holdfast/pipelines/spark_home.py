"""Where Spark finds itself, so that its Python workers start from compiled modules.

Spark puts `python/lib/pyspark.zip` of its home before all else on each worker's path. Nothing in
that archive is compiled: every process of a query would compile PySpark anew, a second each. The
home that this module makes is PySpark's own without that folder, so workers import the package
that is installed, as the driver does.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from holdfast.pipelines.java import cache_folder

LINKED: Final = ("bin", "conf", "jars", "sbin")


def spark_home(environment: Mapping[str, str] | None = None, *, cache: Path | None = None) -> Path:
    """Return the SPARK_HOME that Spark is to be given: the user's own where one is set.

    `environment` stands for the process's own, `cache` for the folder where the home is made.
    """
    environment = os.environ if environment is None else environment
    named = environment.get("SPARK_HOME")
    if named:
        return Path(named)
    found = find_spec("pyspark")
    assert found is not None, "a dependency of this project"
    assert found.origin is not None, "a package with a file"
    installed = Path(found.origin).parent
    cache = cache_folder(environment) if cache is None else cache
    home = cache / f"spark-{hashlib.sha256(str(installed).encode()).hexdigest()[:12]}"
    with suppress(OSError):
        if not home.exists():
            _link(installed, home)
    return home if home.exists() else installed  # slower, where nothing can be written


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
