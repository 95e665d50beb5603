"""The report's page: templates filled with what `views` reckoned, one HTML file that opens offline.

Nothing in it is fetched from anywhere. Every text is escaped by the templates but two that come
escaped: drawings, and the data of their cursors.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.judge.groups.verdict import GROUP_MEANING
from holdfast.judge.verdict import MEANING
from holdfast.lab.report.values import ReportData
from holdfast.lab.report.views import expired, part_views, run_badge, when

if TYPE_CHECKING:
    from jinja2 import Environment

MOMENTS_MAX = 400
STILLS_MAX = 12
EXAMPLES_MAX = 2  # of each anomaly shown at once; more behind a click


def write_report(path: Path, data: ReportData) -> None:
    """Write the page to `path`, whole or not at all. OSError when it can't be written."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(render_page(data), encoding="utf-8")
    temporary.replace(path)


def render_page(data: ReportData) -> str:
    """The whole page. Pure but for reading the templates that stand beside this module."""
    return str(
        templates()
        .get_template("page.html")
        .render(
            data=data,
            badge=run_badge(data),
            when=when(data.parts),
            expired=expired(data.parts),
            parts=part_views(data),
            meanings=[(each.value, meaning) for each, meaning in MEANING.items()],
            group_meanings=[(each.value, meaning) for each, meaning in GROUP_MEANING.items()],
            moments_max=MOMENTS_MAX,
            stills_max=STILLS_MAX,
            examples_max=EXAMPLES_MAX,
        )
    )


def templates() -> Environment:
    """Return the templates of all pages."""
    from jinja2 import (  # noqa: PLC0415 - of the extra `lab`; a folder is judged without it
        Environment,
        PackageLoader,
        StrictUndefined,
    )

    return Environment(
        loader=PackageLoader("holdfast.lab.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
