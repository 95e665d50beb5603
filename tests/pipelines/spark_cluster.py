"""Spark's own processes on loopback: a standalone master and worker, a Connect server, and programs
that are given to them as a user gives them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import spark_classes
from holdfast.cluster.plan import HOST
from holdfast.cluster.ports import free_ports
from holdfast.cluster.processes import wait_until
from holdfast.pipelines.java import java_home
from holdfast.pipelines.spark_home import spark_home

START_S: Final = 240.0
DRIVER_MEMORY: Final = "640m"  # with less than 450 Spark does not start
RUN_S: Final = 900.0  # of a program; a busy machine takes minutes to start a JVM
ATTEMPTS_MAX: Final = 8
TOO_BUSY: Final = "Timed out while waiting for the Python worker to connect back"
PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "spark-cluster.md"
CONNECT: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"


class SparkProcesses:
    """Processes of one cluster, and their logs in `folder`. `running` makes and ends them."""

    def __init__(self, folder: Path, secrets: Mapping[str, str], *, own_home: bool) -> None:
        """`secrets` are variables of the cluster's processes, and not of who submits to them.

        With `own_home=False` workers have PySpark's home as it was installed, and its archive.
        """
        self.folder = folder
        self.cluster = "local[2]"
        self.secrets = dict(secrets)
        self._started: list[subprocess.Popen[bytes]] = []
        self.environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(spark_classes.FOLDER / "none"),  # or Java takes no archive
            "SPARK_DAEMON_MEMORY": "160m",
            "SPARK_DAEMON_JAVA_OPTS": java_options(),
            "SPARK_LOCAL_IP": HOST,
        }
        for name in ("PYSPARK_DRIVER_PYTHON", "PYSPARK_SUBMIT_ARGS", "PYTHONPATH", "SPARK_REMOTE"):
            self.environment.pop(name, None)
        home = spark_home(self.environment if own_home else {"SPARK_HOME": installed_home()})
        self.environment["SPARK_HOME"] = str(home)
        self._bin = home / "bin"

    def end(self) -> None:
        """End what was started, the last one first."""
        for process in reversed(self._started):
            process.terminate()
        for process in reversed(self._started):
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start_standalone(self) -> None:
        """Start a master, and a worker that has registered there."""
        port, web, worker_port, worker_web = free_ports(4)
        self.cluster = f"spark://{HOST}:{port}"
        where = ("--host", HOST, "--port")
        deploy = "org.apache.spark.deploy"
        self._start(
            "master",
            [f"{deploy}.master.Master", *where, str(port), "--webui-port", str(web)],
        )
        resources = ("--cores", "2", "--memory", "1g", "--work-dir", str(self.folder / "work"))
        self._start(
            "worker",
            [
                *(f"{deploy}.worker.Worker", *where, str(worker_port)),
                *("--webui-port", str(worker_web), *resources, self.cluster),
            ],
        )
        self._await("worker", "Successfully registered with master")

    def start_connect(self) -> str:
        """Start a Connect server that has the cluster as its own; return its address."""
        address, told = connect_settings()
        submit = "org.apache.spark.deploy.SparkSubmit"
        words = [submit, "--class", CONNECT, *self._told(told), "spark-internal"]
        # A server takes a daemon's memory for its own.
        self._start("connect", words, SPARK_DAEMON_MEMORY=DRIVER_MEMORY)
        self._await("connect", "Spark Connect server started")
        return address

    def submit(
        self,
        name: str,
        program: Path,
        arguments: Sequence[str],
        settings: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
    ) -> int:
        """Run a program by spark-submit; return its status. Its output is the log `name`.

        Its process is the driver, which has the cluster's secrets.
        """
        words = [str(self._bin / "spark-submit"), *self._told(settings), str(program), *arguments]
        return self._run(name, words, {**self.secrets, **(environment or {})})

    def start_driver(
        self, program: Path, arguments: Sequence[str], settings: Mapping[str, str]
    ) -> None:
        """Start a program by spark-submit, and wait for nothing. Its output is the log `driver`."""
        submit = "org.apache.spark.deploy.SparkSubmit"
        self._start("driver", [submit, *self._told(settings), str(program), *arguments])

    def await_driver(self, word: str) -> None:
        """Wait until the program says it."""
        self._await("driver", word)

    def connect(self, name: str, program: Path, arguments: Sequence[str], server: str) -> int:
        """Run a program as a client of a Connect server, which has nothing of the cluster's.

        Spark gives the server's Python ten seconds to start, and no setting changes that. On a
        machine that is busy beyond that nothing has begun, and it is tried again.
        """
        words = [sys.executable, str(program), *arguments]
        for _ in range(ATTEMPTS_MAX):
            status = self._run(name, words, {"SPARK_REMOTE": server})
            if status == 0 or TOO_BUSY not in self.log(name):
                break
        return status

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _told(self, settings: Mapping[str, str]) -> Iterator[str]:
        small = {
            "spark.cores.max": "1",  # so that two of them fit on the worker
            "spark.driver.bindAddress": HOST,
            "spark.driver.host": HOST,
            "spark.driver.memory": DRIVER_MEMORY,
            "spark.driver.extraJavaOptions": java_options(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events(self.folder).as_uri(),
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": java_options(),
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
        }
        told = {**small, **settings}
        # Its own flag counts before the setting.
        yield from ("--master", told.pop("spark.master", self.cluster))
        for key, value in told.items():
            yield from ("--conf", f"{key}={value}")

    def _start(self, name: str, words: Sequence[str], **environment: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(self._bin / "spark-class"), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**self.environment, **self.secrets, **environment},
            )
        self._started.append(process)

    def _await(self, name: str, word: str) -> None:
        def ready() -> bool:
            process = self._started[-1]
            assert process.poll() is None, f"{name} has ended:\n{self.log(name)}"
            return word in self.log(name)

        wait_until(ready, timeout_s=START_S, what=f"{name} to start")

    def _run(self, name: str, words: Sequence[str], environment: Mapping[str, str]) -> int:
        with (self.folder / f"{name}.log").open("wb") as log:
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**self.environment, **environment},
                timeout=RUN_S,
                check=False,
            )
        return done.returncode


def connect_settings() -> tuple[str, dict[str, str]]:
    """Return an address for a Connect server, and what makes one listen there."""
    (port,) = free_ports(1)
    where = "spark.connect.grpc.binding"
    return f"sc://{HOST}:{port}", {f"{where}.address": HOST, f"{where}.port": str(port)}


def java_options() -> str:
    """Return what every JVM of the tests is given, with the archive of classes if there is one."""
    settings = spark_classes.CONF / "spark-defaults.conf"
    if str(spark_classes.FOLDER / "none") in spark_classes.for_tests().values():
        settings = spark_classes.SETTINGS
    names = dict(line.split(None, 1) for line in settings.read_text().splitlines() if " " in line)
    return names["spark.driver.extraJavaOptions"]


def events(folder: Path) -> Path:
    """Return the folder of event logs, which has to be there before a driver is."""
    (folder / "events").mkdir(exist_ok=True)
    return folder / "events"


def installed_home() -> str:
    """Return PySpark's own home, as pip has installed it."""
    import pyspark  # noqa: PLC0415 - half a second, for few

    return str(Path(pyspark.__file__).parent)


def who_tells(folder: Path, secret: str) -> list[str]:
    """Return the files under a folder that have a text in them, in whatever they are written."""
    needle = secret.encode()
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and needle in path.read_bytes()
    )


@contextmanager
def running(
    folder: Path, secrets: Mapping[str, str], *, own_home: bool = True
) -> Iterator[SparkProcesses]:
    """Have processes that end with the `with`; none is started yet."""
    processes = SparkProcesses(folder, secrets, own_home=own_home)
    try:
        yield processes
    finally:
        processes.end()


def program_of_the_how_to(folder: Path) -> Path:
    """Write down the program of docs/how-to/spark-cluster.md, as it stands there."""
    (text,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    program = folder / "orders.py"
    program.write_text(text)
    return program


def files_rows(table: Path) -> list[tuple[int, int, str]]:
    """Return what a table of Parquet files has: partition, offset and body."""
    from pyarrow import dataset  # noqa: PLC0415 - half a second, for few

    found = dataset.dataset(table, format="parquet").to_table().to_pylist()
    return sorted((row["partition"], row["offset"], row["body"]) for row in found)
