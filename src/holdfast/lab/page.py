"""The report's page: puts text, tables and drawings into the frame of `report.html`."""

from __future__ import annotations

from html import escape

from holdfast.lab.report import ReportData


def render_page(data: ReportData) -> str:
    return f"<!doctype html><title>{escape(data.title)}</title><p>{escape(data.verdict)}"
