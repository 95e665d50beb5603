"""Goal: a drawing that leaves its report looks as it did there, and names what it can't find.

Method: every drawing of a made-up report, read as XML, its classes held against the stylesheet's.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest
from tests.lab import made_up

import report_pictures
from holdfast.lab.report.page import render_page

CLASSES = re.compile(r'class="([^"]*)"')


@pytest.fixture(scope="module")
def part() -> str:
    return report_pictures.parts_of(render_page(made_up.report(lost=3)))[0]


def figures(part: str) -> list[str]:
    return re.findall(r"<figcaption><b>(.*?)</b>", part)


def test_every_drawing_stands_alone_with_all_that_it_is_drawn_by(part: str) -> None:
    sheet = (report_pictures.TEMPLATES / "style.css").read_text(encoding="utf-8")
    named = set(re.findall(r"\.([a-z][\w-]*)[^{}]*\{", sheet))
    assert len(figures(part)) > 2
    for title in figures(part):
        picture = report_pictures.alone(report_pictures.drawing_of(part, title), "")
        root = ET.fromstring(picture)
        style = next(root.iter("{http://www.w3.org/2000/svg}style")).text or ""
        drawn = {name for names in CLASSES.findall(picture) for name in names.split()}
        assert drawn & named, title
        assert drawn & named <= set(re.findall(r"\.([a-z][\w-]*)", style)), title
        assert "prefers-color-scheme: dark" in style
        assert "http" not in picture.replace('xmlns="http://www.w3.org/2000/svg"', "")


def test_what_there_is_not_is_said_with_what_there_is(part: str) -> None:
    with pytest.raises(SystemExit, match=r"--figure Nodes and all: there are .*Throughput"):
        report_pictures.drawing_of(part, "Nodes and all")
    with pytest.raises(SystemExit, match="no part in it"):
        report_pictures.parts_of("<html></html>")
