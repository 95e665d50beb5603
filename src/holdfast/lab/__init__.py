"""Experiments on a real cluster: workloads, scenarios with their controls, and the report.

The lab starts processes and waits on conditions; what a run proves is for `judge` to say.
Page: docs/design/lab.md.
"""
