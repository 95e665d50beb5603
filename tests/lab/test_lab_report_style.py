"""Goal: what the page says can be read, in light and in dark: contrast and size of its letters.

Method: the style's own colours by the formula of WCAG 2, and every size that it sets.
"""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

STYLE = files("holdfast.lab.report").joinpath("templates/style.css").read_text(encoding="utf-8")
TEXT, GRAPHICS = 4.5, 3.0  # WCAG AA: 1.4.3 and 1.4.11
TEXTS = [
    (text, ground)
    for ground in ("back", "paper", "faint")
    for text in ("ink", "soft", "bad", "good", "warn", "link", "up")
    if (text, ground) != ("link", "faint")
] + [(tone, f"{tone}-back") for tone in ("good", "bad", "warn")]
TEXTS += [("ink", f"{tone}-back") for tone in ("good", "bad", "warn")]
LINES = [(f"c{number}", "paper") for number in range(6)] + [("leads", "paper"), ("leads", "insync")]


def colours(*, dark: bool) -> dict[str, str]:
    """The variables of one scheme."""
    light, _, other = STYLE.partition("@media (prefers-color-scheme: dark)")
    found = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", light.partition("}")[0]))
    if dark:
        found |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", other.partition("}")[0]))
    return found


def luminance(colour: str) -> float:
    def linear(channel: int) -> float:
        share = channel / 255
        return share / 12.92 if share <= 0.04045 else float(((share + 0.055) / 1.055) ** 2.4)

    red, green, blue = (linear(int(colour[at : at + 2], 16)) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(left: str, right: str) -> float:
    lighter, darker = sorted((luminance(left), luminance(right)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("front", "ground", "least"),
    [*((*pair, TEXT) for pair in TEXTS), *((*pair, GRAPHICS) for pair in LINES)],
)
def test_contrast(front: str, ground: str, least: float, *, dark: bool) -> None:
    known = colours(dark=dark)
    found = contrast(known[front], known[ground])
    assert found >= least, f"{known[front]} on {known[ground]}: {found:.2f}"


def test_the_dark_scheme_has_colours_of_its_own() -> None:
    light, dark = colours(dark=False), colours(dark=True)
    assert light.keys() == dark.keys()
    assert all(light[name] != dark[name] for name in light)


def test_no_letter_is_small() -> None:
    sizes = [float(size) for size in re.findall(r"font(?:-size)?: ([\d.]+)px", STYLE)]
    assert sizes
    assert min(sizes) >= 12
