"""Goal: the report can be read on a telephone and on a desk, in light and in dark.

Method: a real Chromium opens the page and is asked what it shows. About four seconds in all.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.lab import made_up
from tests.lab.browser import Browser, chromium

from holdfast.lab.report.page import write_report

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.chromium,
    pytest.mark.skipif(chromium() is None, reason="Debian's chromium is not installed"),
]

DESK, TELEPHONE = (1280, 800), (390, 844)
SMALLEST_PX = 11.0

# Everything that is shown: letters as large as they are drawn, scaled with their drawing.
SIZES = """
(() => {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.textContent.trim() || !element.checkVisibility()) continue;
    if (element.closest("script, style, title, .unseen")) continue;
    let size = parseFloat(getComputedStyle(element).fontSize);
    const matrix = element instanceof SVGElement ? element.getScreenCTM() : null;
    if (matrix) size *= Math.hypot(matrix.a, matrix.b);
    found.push([size, node.textContent.trim().slice(0, 40)]);
  }
  return found.sort((a, b) => a[0] - b[0]).slice(0, 3);
})()
"""
# What of the page's head lies wholly on the first screen.
FIRST_SCREEN = """
Array.from(document.querySelectorAll("h1, .verdict, .facts > *"))
  .filter((each) => each.getBoundingClientRect().bottom <= innerHeight)
  .map((each) => each.innerText).join("\\n")
"""
SHOWN = """
Array.from(document.querySelectorAll("figure .drawing")).map(
  (each) => Array.from(each.querySelectorAll("svg.chart")).filter((svg) => svg.checkVisibility())
    .map((svg) => svg.classList[1]).join())
"""
CLIPPED = """
Array.from(document.querySelectorAll("svg.chart")).filter((svg) => svg.checkVisibility())
  .flatMap((svg) => Array.from(svg.querySelectorAll("text")).filter((text) => {
    const box = text.getBoundingClientRect(), around = svg.getBoundingClientRect();
    return box.left < around.left - 1 || box.right > around.right + 1
      || box.top < around.top - 1 || box.bottom > around.bottom + 1;
  }).map((text) => text.textContent))
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(path, made_up.report(lost=3))
    return path


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("screen", [DESK, TELEPHONE], ids=["desk", "telephone"])
def test_a_person_can_read_it(
    browser: Browser, page: Path, screen: tuple[int, int], *, dark: bool
) -> None:
    width, height = screen
    browser.open(page, width=width, height=height, dark=dark)
    assert browser.ask("document.documentElement.scrollWidth") <= width, "it must be pushed aside"

    smallest = browser.ask(SIZES)
    assert smallest[0][0] >= SMALLEST_PX, smallest

    said = browser.ask(FIRST_SCREEN)
    for words in (
        "one-broker-down",
        "Promise broken",
        "Nothing acknowledged is lost",
        "Broken on purpose",
        "SIGKILL of node 1",
        "3 lost",
        "control failed, as it must",
        "Expired",
    ):
        assert words in said, words

    back = browser.ask("getComputedStyle(document.body).backgroundColor")
    assert back == ("rgb(16, 21, 27)" if dark else "rgb(246, 247, 249)")


@pytest.mark.parametrize(
    ("width", "layout"), [(1280, "wide"), (1100, "middle"), (720, "middle"), (360, "narrow")]
)
def test_of_each_chart_the_drawing_that_fits_is_shown(
    browser: Browser, page: Path, width: int, layout: str
) -> None:
    browser.open(page, width=width, height=800, dark=False)
    shown = browser.ask(SHOWN)
    assert len(shown) > 8
    assert set(shown) == {layout}
    assert browser.ask(SIZES)[0][0] >= SMALLEST_PX
    assert browser.ask(CLIPPED) == []


def test_the_cursor_shows_the_values_of_its_moment(browser: Browser, page: Path) -> None:
    browser.open(page, width=1280, height=800, dark=False)
    said = browser.ask(
        """
        (() => {
          const svg = document.querySelectorAll("figure svg.wide")[1];
          const box = svg.getBoundingClientRect();
          svg.dispatchEvent(new PointerEvent("pointermove", {bubbles: true,
            clientX: box.left + box.width / 2, clientY: box.top + 20}));
          return document.querySelector(".tip").innerText;
        })()
        """
    )
    assert " s\n" in said
    assert "P0  " in said
    assert "p99  " in said
