"""kafka-python's source package: the version that requirements/dev.txt pins, checked by its hash.

Owns how it is brought and what it lacks. Nothing of it is changed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PINS: Final = ROOT / "requirements" / "dev.txt"
KEPT: Final = ROOT / ".cache" / "kafka-python"
# Two modules of its tests are in its repository and not in its package. The second one starts
# brokers; with a broker that is there already, the tests only ask for its names.
LEFT_OUT: Final = {
    "test/__init__.py": "",
    "test/service.py": '''"""Stands in for what the package leaves out; it starts no broker."""


class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port


class SpawnedService:
    def __init__(self, args=None, env=None):
        raise NotImplementedError("no broker")
''',
}


class UnavailableError(Exception):
    """The package can't be had here."""


def pin() -> tuple[str, str]:
    """Return the version, and the lines of requirements that name it with its hashes."""
    found = re.search(
        r"^kafka-python==(\S+)(?: \\\n +--hash=\S+)+\n", PINS.read_text(), re.MULTILINE
    )
    assert found is not None, f"{PINS} doesn't pin it"
    return found[1], found[0]


def unpacked(directory: Path) -> Path:
    """Put the package's files, and what they lack, into a folder; that of its tests' root."""
    version, _ = pin()
    shutil.unpack_archive(_brought(), directory)  # pip has checked its hash
    root = directory / f"kafka_python-{version}"
    for name, text in LEFT_OUT.items():
        path = root / name
        assert not path.exists(), f"the package has {name} now: leave ours out"
        path.write_text(text)
    return root


def _brought() -> Path:
    """Have pip bring it, once for a version. UnavailableError where that can't be done."""
    version, lines = pin()
    archive = KEPT / f"kafka_python-{version}.tar.gz"
    KEPT.mkdir(parents=True, exist_ok=True)
    pins = KEPT / "pins.txt"
    pins.write_text(lines)
    # pip checks the hash of what is there already, too, and brings it anew where that is wrong.
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--no-build-isolation", "--no-binary", "kafka-python"),
        *("--require-hashes", "--requirement", str(pins), "--dest", str(KEPT)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(done.stderr.strip() or done.stdout.strip())
    return archive
