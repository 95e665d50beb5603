"""What every test may ask for."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what golden transcripts gave into their files; review it as a diff",
    )


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether golden transcripts are to be rewritten instead of compared."""
    return bool(request.config.getoption("--rewrite"))
