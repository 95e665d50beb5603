"""Goal: docs/reference is what `make docs` would write now. Method: render, compare."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_configuration_reference_is_current() -> None:
    script = ROOT / "scripts" / "reference.py"
    spec = importlib.util.spec_from_file_location("reference", script)
    assert spec is not None
    assert spec.loader is not None
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)

    page = (ROOT / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")

    assert page == reference.render(), "run `make docs`"
