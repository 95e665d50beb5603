"""The report of a run: values that a run fills in, and one HTML file that is made of them."""

from holdfast.lab.report.values import (
    Check,
    Curve,
    Lag,
    PartReport,
    ReportData,
    Series,
    Spot,
    Table,
)

__all__ = ["Check", "Curve", "Lag", "PartReport", "ReportData", "Series", "Spot", "Table"]
