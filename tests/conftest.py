"""What every test may ask for."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from tests.lab.browser import Browser, chromium
from tests.lanes import Lanes, cores

import spark_classes

# How long an example takes says how busy the machine is.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = chromium()
    assert program is not None
    with Browser(program, tmp_path_factory.mktemp("chromium")) as found:
        yield found


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what golden transcripts gave into their files; review it as a diff",
    )
    parser.addoption(
        "--in-turns",
        action="store_true",
        help="of the tests marked `turns` only those whose turn it is with this state of the code",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return for `-n auto` one more than there are cores: tests/lanes.py says what it may do."""
    return cores() + int(config.option.numprocesses == "auto")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Lanes(config), "lanes")
    if "SPARK_CONF_DIR" not in os.environ:
        os.environ |= spark_classes.for_tests()
    # Each of Spark's many Python processes imports numpy, which makes threads for nobody.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # A shell's background job ignores SIGINT, and so would every process that a test interrupts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Simulations end with a full collection: it need not walk thousands of collected tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _freeze_what_earlier_modules_left() -> None:
    """Keep those collections as cheap as at the beginning; what is frozen is only not looked at."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether golden transcripts are to be rewritten instead of compared."""
    return bool(request.config.getoption("--rewrite"))
