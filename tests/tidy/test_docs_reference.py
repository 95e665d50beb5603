"""Goal: docs/reference is what `make docs` would write now. Method: render, compare."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_reference_pages_are_current() -> None:
    script = ROOT / "scripts" / "reference.py"
    spec = importlib.util.spec_from_file_location("reference", script)
    assert spec is not None
    assert spec.loader is not None
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)

    pages = reference.pages()

    assert pages
    for name, text in pages.items():
        page = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
        assert page == text, f"docs/reference/{name} is old: run `make docs`"
