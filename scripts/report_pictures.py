"""Take drawings out of a run's report, as SVG files that stand alone: for pages of docs/.

    python scripts/report_pictures.py RUN/report.html --part 0 --figure Latency -o picture.svg

A part is counted from 0, in the report's order; a figure goes by its title. What the report's
stylesheet says of drawings goes with them, the dark colours too.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import holdfast.lab.report

LAYOUT = "middle"  # of the three that a report has: it can be read in a column of text
TEMPLATES = Path(holdfast.lab.report.__file__).parent / "templates"
SELECTOR = re.compile(r"([^{}]+)\{")


def style(drawing: str) -> str:
    """Return the stylesheet's colours, light and dark, and its rules for what a drawing has."""
    text = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    colours = text[: text.index("* { box-sizing")]
    drawn = {name for names in re.findall(r'class="([^"]*)"', drawing) for name in names.split()}
    rules = [
        line
        for line in text[len(colours) :].splitlines()
        for what in [" ".join(SELECTOR.findall(line))]
        if "svg text {" in line or drawn.intersection(re.findall(r"\.([a-z][\w-]*)", what))
    ]
    return "\n".join([colours.rstrip(), *rules, ".paper { fill: var(--paper); }"])


def parts_of(page: str) -> list[str]:
    """Return the parts of a report, as they stand in it."""
    found = re.split(r'<section class="part', page)[1:]
    if not found:
        raise SystemExit("no part in it: is that the report.html of a run?")
    return found


def drawing_of(part: str, title: str) -> str:
    """Return the drawing of the figure with that title."""
    figures = {
        re.sub(r"<[^>]+>", "", match[1]).strip(): match[0]
        for match in re.finditer(
            r"<figure>\s*<figcaption><b>(.*?)</b>.*?</figure>", part, re.DOTALL
        )
    }
    if title not in figures:
        raise SystemExit(f"--figure {title}: there are {', '.join(sorted(figures))}")
    drawn = re.search(rf'<svg class="chart {LAYOUT}".*?</svg>', figures[title], re.DOTALL)
    assert drawn is not None, "a figure without a drawing"
    return drawn[0]


def alone(drawing: str, patterns: str) -> str:
    """Return a drawing as a file of its own."""
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawing)
    assert box is not None, "a drawing without a size"
    width, height = box[1], box[2]
    begin = drawing.index(">") + 1
    head = drawing[: begin - 1].replace(f'class="chart {LAYOUT}" ', "")
    head = f'{head} xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">'
    whole = patterns + drawing[begin:]
    paper = f'<rect class="paper" width="{width}" height="{height}"/>'
    return f"{head}<style>\n{style(whole)}\n</style>{patterns}{paper}{drawing[begin:]}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", type=Path, help="report.html of a run")
    parser.add_argument("--part", type=int, default=0, help="counted from 0")
    parser.add_argument("--figure", default="Leaders and in-sync replicas", help="its title")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the SVG file")
    asked = parser.parse_args()
    page = asked.report.read_text(encoding="utf-8")
    parts = parts_of(page)
    if asked.part >= len(parts):
        raise SystemExit(f"--part {asked.part}: there are {len(parts)}")
    patterns = re.search(r"<defs>.*?</defs>", page, re.DOTALL)
    drawing = drawing_of(parts[asked.part], asked.figure)
    asked.output.write_text(alone(drawing, patterns[0] if patterns else ""), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
