"""The results as a table in Markdown, engines side by side. Pure."""

from __future__ import annotations

from typing import Any

# Metric, heading, factor, digits, and whether more is better.
_THROUGHPUT = (
    ("records_per_s", "messages/s", 1.0, 0),
    ("mb_per_s", "MB/s", 1.0, 1),
    ("p50_ms", "p50 ms", 1.0, 2),
    ("p99_ms", "p99 ms", 1.0, 2),
    ("p999_ms", "p99.9 ms", 1.0, 2),
    ("cpu_ms_per_mb", "CPU ms/MB", 1.0, 2),
    ("cpu_us_per_request", "CPU us/request", 1.0, 1),
)

_RATIOS = (
    "Ratio: MB/s against the floor's, else against Apache Kafka's. By CPU: how much more the same"
    " CPU time carries; where other work shares the processors, this is the steadier one. Spread:"
    " highest less lowest MB/s of the rounds, of the median. Where we lose to Apache Kafka, else to"
    " the floor, the most comes first."
)


def render(report: dict[str, Any]) -> str:
    """Return the table. Ratios are medians over medians of interleaved runs."""
    machine = report["machine"]
    lines = [
        f"# {report['began']}, commit {machine['commit']}",
        "",
        _conditions(report),
        "",
    ]
    cases: dict[str, Any] = report["cases"]
    measured = {name: engines for name, engines in cases.items() if _is_load(engines)}
    if measured:
        headings = ["case", "engine", *(heading for _, heading, _, _ in _THROUGHPUT)]
        headings += ["ratio", "by CPU", "of Apache Kafka", "spread"]
        lines += [_row(headings), _row(["--"] * len(headings))]
        for name, engines in sorted(measured.items(), key=lambda case: _standing(case[1])):
            lines += [_row(cells) for cells in _rows(name, engines)]
        lines += ["", _RATIOS, ""]
        lines += [
            f"Not warm when it was measured, so worse than it is: {each}."
            for each in report.get("still_warming", ())
        ]
    others = {name: engines for name, engines in cases.items() if name not in measured}
    if others:
        lines += [_row(["moment", "engine", "measured"]), _row(["--"] * 3)]
        for name, engines in others.items():
            for engine, metrics in engines.items():
                text = ", ".join(
                    f"{metric} {_number(value['median'], 2)}" for metric, value in metrics.items()
                )
                lines.append(_row([name, engine, text]))
    return "\n".join(lines) + "\n"


def _conditions(report: dict[str, Any]) -> str:
    machine = report["machine"]
    load = machine["load_average"][0]
    return (
        f"{machine['cpus']} CPUs, Python {machine['python']}, load average before the run"
        f" {load:.1f}; {report['rounds']} rounds, each case loaded for {report['warm_s']:g} s on"
        f" each engine before the first, or longer until it was warm; took {report['took_s']} s."
    )


def _is_load(engines: dict[str, Any]) -> bool:
    return all("requests_per_s" in metrics for metrics in engines.values())


def _rows(name: str, engines: dict[str, Any]) -> list[list[str]]:
    reference = engines.get("floor") or engines.get("apache")
    rows: list[list[str]] = []
    for engine, metrics in engines.items():
        cells = [
            _number(metrics[metric]["median"] * factor, digits)
            for metric, _, factor, digits in _THROUGHPUT
        ]
        ratios = ["", ""]
        if reference is not None and reference is not metrics:
            ratios = [
                _ratio(metrics, reference, "mb_per_s"),
                _ratio(reference, metrics, "cpu_ms_per_mb"),
            ]
        apache = engines.get("apache", metrics)
        ratios.append("" if apache is metrics else _ratio(metrics, apache, "mb_per_s"))
        ratios.append(_spread(metrics["mb_per_s"]))
        rows.append([name if not rows else "", engine, *cells, *ratios])
    return rows


def _standing(engines: dict[str, Any]) -> float:
    """Return our MB/s by Apache Kafka's, else by the floor's; cases without either come last."""
    ours = next((metrics for name, metrics in engines.items() if name.startswith("holdfast")), None)
    other = engines.get("apache") or engines.get("floor")
    if ours is None or other is None or not other["mb_per_s"]["median"]:
        return float("inf")
    return float(ours["mb_per_s"]["median"] / other["mb_per_s"]["median"])


def _spread(metric: dict[str, Any]) -> str:
    rounds, middle = metric.get("rounds", ()), metric["median"]
    return f"{(max(rounds) - min(rounds)) / middle:.0%}" if middle and len(rounds) > 1 else ""


def _ratio(metrics: dict[str, Any], other: dict[str, Any], name: str) -> str:
    below = other[name]["median"]
    return f"{metrics[name]['median'] / below:.2f}" if below else ""


def _number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}"


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
