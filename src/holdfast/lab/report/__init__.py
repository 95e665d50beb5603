"""The report of a run: values that a run fills in, and one HTML file that is made of them."""

from holdfast.lab.report.values import Check, Lag, PartReport, ReportData, Table

__all__ = ["Check", "Lag", "PartReport", "ReportData", "Table"]
