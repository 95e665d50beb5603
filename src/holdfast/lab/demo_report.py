"""The demo's report: a verdict put into words for `write_report`. Owns no figures."""

from __future__ import annotations

from holdfast.lab.demo_check import DemoVerdict
from holdfast.lab.demo_plan import DemoPlan, Places
from holdfast.lab.report import PartReport, ReportData
from holdfast.lab.report.page import write_report


def verdict_sentence(plan: DemoPlan, verdict: DemoVerdict) -> str:
    """Return PASS or FAIL and the counts, in one sentence."""
    counts = verdict.evidence.judgement.counts
    if verdict.kept:
        said = (
            f"PASS: {counts.acknowledged:,} events acknowledged; each is in the log once and in "
            "the table once"
        )
        return said + ("; no money appeared or disappeared." if plan.kind == "payments" else ".")
    wrong = [check for check in verdict.checks if not check.kept]
    return "FAIL: " + "; ".join(f"{check.name}: {check.seen}" for check in wrong) + "."


def report_demo(places: Places, plan: DemoPlan, verdict: DemoVerdict, command: str) -> None:
    """Write the run's report.html."""
    write_report(places.report, report_data(plan, verdict, command))


def report_data(plan: DemoPlan, verdict: DemoVerdict, command: str) -> ReportData:
    what = "payments between accounts" if plan.kind == "payments" else "the lines of a file"
    return ReportData(
        title="demo",
        summary=(
            f"{plan.events:,} events, {what}, went through three brokers into a table kept by "
            "Spark. On the way the leader of partition 0 was killed with SIGKILL and started again."
        ),
        kept=verdict.kept,
        verdict=verdict_sentence(plan, verdict),
        promise=verdict.promise.text + " Each event is in the table exactly once.",
        command=command,
        parts=[
            PartReport(
                title="Log and table",
                headline=verdict_sentence(plan, verdict),
                kept=verdict.kept,
                text=_table_text(plan),
                evidence=verdict.evidence,
                checks=verdict.checks,
                tables=verdict.tables,
                settings=_configuration(plan),
            )
        ],
        forbidden=frozenset(str(each) for each in verdict.promise.forbids),
    )


def _table_text(plan: DemoPlan) -> str:
    text = (
        "Rows and the next offset of each partition are committed in one transaction. The tables "
        "have no unique key: a row written twice would stand there twice, and be counted."
    )
    if plan.malformed:
        text += (
            f" {plan.malformed:,} malformed lines of the input were kept aside in malformed.jsonl."
        )
    return text


def _configuration(plan: DemoPlan) -> dict[str, str]:
    values = {
        "brokers": "3, and controllers of their own",
        "topic": f"{plan.topic}: {plan.partitions} partitions, RF 3, min.insync.replicas 2",
        "producer": f"idempotent, acks=all, {plan.rate:,.0f} events/s",
        "database": plan.database or "SQLite, table.db",
    }
    if plan.kind == "payments":
        values["payments"] = f"{plan.accounts} accounts, seed {plan.seed}"
    else:
        values["input"] = f"{plan.input}, key {plan.key or 'none'}"
        values["input SHA-256"] = plan.sha256
    return values
