"""`holdfast demo`: run the demo, or check the table of an earlier run again.

Shows progress and prints the verdict. Exit status: 0 PASS, 1 FAIL, 2 it could not be run.
"""

from __future__ import annotations

import importlib.util
import json
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import EXIT_FAILED, EXIT_USAGE, CommandError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress

    from holdfast.lab.demo import DemoOptions, Standing
    from holdfast.lab.demo_check import DemoVerdict
    from holdfast.lab.demo_plan import DemoPlan

NEEDED = ("pyspark", "pyarrow", "pandas", "sqlalchemy", "jinja2")
RUNS = Path("runs")


def demo(
    *,
    input_option: Annotated[
        Path | None,
        typer.Option(
            "--input",
            metavar="FILE",
            help="JSON lines or CSV of your own, instead of payments between accounts.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="FIELD",
            help="With --input: the field whose value is the event's key.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="DIR",
            help="Where everything of the run is kept; new or empty.",
            show_default="runs/demo-TIME",
        ),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            "--check",
            metavar="DIR",
            help="Run nothing: hold the table of an earlier run against its log again.",
            show_default=False,
        ),
    ] = None,
    events: Annotated[
        int, typer.Option("--events", metavar="N", min=1, help="How many payments.")
    ] = 30_000,
    rate: Annotated[
        float, typer.Option("--rate", metavar="N", min=1, help="Events a second, at most.")
    ] = 2_500,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Another seed, other payments.")
    ] = 1,
    database: Annotated[
        str | None,
        typer.Option(
            "--database",
            metavar="URL",
            help="Where the table is: postgresql+psycopg://USER@HOST/NAME, for one.",
            show_default="SQLite, table.db in the run's directory",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Events flow into three brokers, Spark keeps a table of them, and a broker is killed.

    At the end every acknowledged event must be in the log once and in the table once. The verdict,
    its evidence and a report.html stay in the run's directory; delete a row of the table and
    --check it again, and the answer is FAIL.
    """
    if check is not None:
        _check(check, as_json=as_json)
        return
    if key is not None and input_option is None:
        raise CommandError("--key belongs to --input FILE.", code=EXIT_USAGE)
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandError(
            f"The demo needs {', '.join(missing)}: pip install 'holdfast[spark,lab]'.",
            code=EXIT_USAGE,
        )
    from holdfast.lab.demo import DemoOptions  # noqa: PLC0415 - SQLAlchemy and Kafka's client

    options = DemoOptions(
        directory=output or RUNS / time.strftime("demo-%Y%m%d-%H%M%S"),
        events=events,
        rate=rate,
        seed=seed,
        input=input_option,
        key=key,
        database=database,
        command=shlex.join(["holdfast", *sys.argv[1:]]),
    )
    _run(options, as_json=as_json)


def _run(options: DemoOptions, *, as_json: bool) -> None:
    from holdfast.cluster import ClusterError  # noqa: PLC0415 - as above
    from holdfast.lab.demo import Demo  # noqa: PLC0415
    from holdfast.lab.demo_input import InputError  # noqa: PLC0415
    from holdfast.lab.demo_plan import DemoError  # noqa: PLC0415
    from holdfast.lab.demo_report import verdict_sentence  # noqa: PLC0415

    def terminated(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)  # on the way out everything that was started is ended

    before = signal.signal(signal.SIGTERM, terminated)
    shown = Shown(quiet=as_json)
    shown.step(f"everything of this run is kept in {options.directory}")
    try:
        with shown:
            result = Demo(options, shown).run()
    except (DemoError, InputError, ClusterError) as error:
        raise CommandError(str(error), code=EXIT_USAGE) from error
    finally:
        signal.signal(signal.SIGTERM, before)
    sentence = verdict_sentence(result.plan, result.verdict)
    if as_json:
        print(_json(options.directory, sentence, result.verdict, seconds=result.seconds))
    else:
        _print_verdict(shown.console, result.plan, result.verdict, sentence)
        shown.console.print(f"Report: {result.report}  ({result.seconds:.0f} s)", highlight=False)
        again = f"holdfast demo --check {shlex.quote(str(options.directory))}"
        shown.console.print(f"Check the table again: {again}", highlight=False, soft_wrap=True)
    if not result.verdict.kept:
        raise typer.Exit(EXIT_FAILED)


def _check(directory: Path, *, as_json: bool) -> None:
    from rich.console import Console  # noqa: PLC0415 - as above

    from holdfast.lab.demo_check import check_demo  # noqa: PLC0415
    from holdfast.lab.demo_plan import DemoError, DemoPlan  # noqa: PLC0415
    from holdfast.lab.demo_report import verdict_sentence  # noqa: PLC0415

    try:
        plan = DemoPlan.read(directory)
        verdict = check_demo(directory)
    except DemoError as error:
        raise CommandError(str(error), code=EXIT_USAGE) from error
    sentence = verdict_sentence(plan, verdict)
    if as_json:
        print(_json(directory, sentence, verdict))
    else:
        _print_verdict(Console(), plan, verdict, sentence)
    if not verdict.kept:
        raise typer.Exit(EXIT_FAILED)


def _json(
    directory: Path, sentence: str, verdict: DemoVerdict, *, seconds: float | None = None
) -> str:
    counts = verdict.evidence.judgement.counts
    values: dict[str, object] = {
        "verdict": "PASS" if verdict.kept else "FAIL",
        "sentence": sentence,
        "acknowledged": counts.acknowledged,
        "unknown": counts.unknown + counts.unanswered,
        "in_log": counts.in_log,
        "checks": [
            {
                "name": check.name,
                "expected": check.expected,
                "seen": check.seen,
                "kept": check.kept,
            }
            for check in verdict.checks
        ],
        "directory": str(directory),
    }
    if seconds is not None:
        values["seconds"] = round(seconds, 1)
    return json.dumps(values)


def _print_verdict(console: Console, plan: DemoPlan, verdict: DemoVerdict, sentence: str) -> None:
    from rich.markup import escape  # noqa: PLC0415 - as above

    console.print()
    for check in verdict.checks:
        mark = "[green]✓[/]" if check.kept else "[red]✗[/]"
        console.print(f"{mark} {escape(check.name)}", highlight=False, soft_wrap=True)
        if not check.kept:
            console.print(f"    expected {escape(check.expected)}", soft_wrap=True)
        console.print(f"    [dim]seen[/]     {escape(check.seen)}", soft_wrap=True)
    console.print()
    if plan.malformed:
        console.print(
            f"Malformed lines of the input, kept aside: {plan.malformed:,}", highlight=False
        )
    colour = "bold green" if verdict.kept else "bold red"
    console.print(f"[{colour}]{escape(sentence)}[/]", highlight=False, soft_wrap=True)


class Shown:
    """Progress for a person: a line for each step, and two bars on a terminal."""

    def __init__(self, *, quiet: bool) -> None:
        from rich.console import Console  # noqa: PLC0415 - as above

        self.console: Console = Console(quiet=quiet, highlight=False)
        self._begin = time.monotonic()
        self._bars: RichProgress | None = None

    def __enter__(self) -> None:
        if not self.console.is_terminal or self.console.quiet:
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415

        self._bars = Progress(
            TextColumn("         {task.description:<14}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
            transient=True,
        )
        for name in ("acknowledged", "in the table"):
            self._bars.add_task(name, total=None, note="")
        self._bars.start()

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def step(self, text: str) -> None:
        seconds = time.monotonic() - self._begin
        self.console.print(f"[dim]{seconds:6.1f} s[/] {text}", soft_wrap=True)

    def standing(self, now: Standing) -> None:
        if self._bars is None:
            return
        acknowledged, table = self._bars.task_ids
        leaders = " ".join(
            f"{number}:{'-' if leader < 0 else leader}" for number, leader in now.leaders.items()
        )
        self._bars.update(
            acknowledged,
            completed=now.acknowledged,
            total=now.events,
            note=f"leaders {leaders}" if leaders else "",
        )
        self._bars.update(table, completed=now.rows, total=now.events)
