"""One Spark session on this machine, with settings that keep it small and off the network.

Owns the settings and the environment that Spark's Python workers need; must never start a query.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast
from holdfast.pipelines.java import java_home
from holdfast.pipelines.spark_home import spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEAP_MB = 1024


def settings(*, cores: int, heap_mb: int) -> dict[str, str]:
    """Return Spark's configuration for a session on this machine."""
    return {
        "spark.master": f"local[{cores}]",
        "spark.driver.memory": f"{heap_mb}m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.metricsEnabled": "false",
        # Ivy, Hive and the event log have no part here; the warehouse is never written to.
        "spark.eventLog.enabled": "false",
        "spark.sql.catalogImplementation": "in-memory",
    }


def prepare_environment() -> None:
    """Point Spark at this interpreter, a Java that works and itself; its workers at this package.

    JavaError, SparkHomeError: there is no such Java, or no such Spark.

    Without PYSPARK_PYTHON workers take whatever `python3` PATH has and crash; without the path they
    can't import the source when the project runs from its tree.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = str(spark_home())  # first: who has no PySpark has not its Java, too
    os.environ["JAVA_HOME"] = str(java_home())
    home = str(Path(holdfast.__file__).resolve().parent.parent)
    path = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    if home not in path:
        os.environ["PYTHONPATH"] = os.pathsep.join([home, *path])


def local_session(
    application: str,
    *,
    cores: int = 2,
    heap_mb: int = HEAP_MB,
    extra: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start Spark in this process's JVM: 5 to 12 s. JavaError, SparkHomeError: it can't."""
    prepare_environment()
    from pyspark.sql import SparkSession  # noqa: PLC0415 - half a second, and it reads JAVA_HOME

    builder = SparkSession.builder.appName(application)
    for name, value in {**settings(cores=cores, heap_mb=heap_mb), **(extra or {})}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session
