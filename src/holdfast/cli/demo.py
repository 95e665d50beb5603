"""`holdfast demo`: run the demo, or check the table of an earlier run again.

Shows progress and prints the verdict. Exit status: 0 PASS, 1 FAIL, 2 it could not be run, or not
to its end with nothing seen broken.
"""

from __future__ import annotations

import importlib.util
import json
import math
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.check import check as check_folder
from holdfast.cli.check import print_judged
from holdfast.cli.exit_status import EXIT_USAGE, CommandError, InterruptedCommandError
from holdfast.cli.interrupts import interrupted_once, kept_in
from holdfast.cli.shared_options import refuse_idle

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress

    from holdfast.lab.demo.steps import DemoOptions, Standing

NEEDED = ("pyspark", "pyarrow", "pandas", "sqlalchemy", "jinja2")
RUNS = Path("runs")
EVENTS, RATE, SEED = 30_000, 2_500, 1
RATE_MAX = 10_000_000  # nothing here comes near it
# What each option has an effect on: payments, a file's lines, or an earlier run.
RUN = ("payments", "--input")
GOES_WITH = {
    "--input": ("--input",),
    "--key": ("--input",),
    "--output": RUN,
    "--events": ("payments",),
    "--rate": RUN,
    "--seed": ("payments",),
    "--database": RUN,
}


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
            help="Run nothing: judge an earlier run again, as holdfast check does.",
            show_default=False,
        ),
    ] = None,
    events: Annotated[
        int | None,
        typer.Option(
            "--events",
            metavar="N",
            min=1,
            help="How many payments.",
            show_default=f"{EVENTS:,}",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            metavar="N",
            min=1,
            max=RATE_MAX,
            help="Events a second, at most.",
            show_default=f"{RATE:,}",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            metavar="N",
            help="Another seed, other payments.",
            show_default=str(SEED),
        ),
    ] = None,
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
    """Events flow into three brokers, Spark keeps a table; a broker is killed, and Spark itself.

    At the end every acknowledged event must be in the log once and in the table once. The verdict,
    its evidence and a report.html stay in the run's directory; delete a row of the table and
    check it again, and the answer is FAIL.
    """
    if rate is not None and math.isnan(rate):
        raise CommandError("--rate nan: it is no number.", code=EXIT_USAGE)
    what = "--check" if check else "--input" if input_option else "payments"
    given = {
        "--input": input_option,
        "--key": key,
        "--output": output,
        "--events": events,
        "--rate": rate,
        "--seed": seed,
        "--database": database,
    }
    refuse_idle(what, given, GOES_WITH)
    if check is not None:
        check_folder(check, as_json=as_json)
        return
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandError(
            f"The demo needs {', '.join(missing)}: pip install 'holdfast[spark,lab]'.",
            code=EXIT_USAGE,
        )
    from holdfast.lab.demo.steps import DemoOptions  # noqa: PLC0415 - SQLAlchemy and Kafka's client

    options = DemoOptions(
        directory=output or RUNS / time.strftime("demo-%Y%m%d-%H%M%S"),
        events=EVENTS if events is None else events,
        rate=RATE if rate is None else rate,
        seed=SEED if seed is None else seed,
        input=input_option,
        key=key,
        database=database,
        command=shlex.join(["holdfast", *sys.argv[1:]]),
    )
    _run(options, as_json=as_json)


def _run(options: DemoOptions, *, as_json: bool) -> None:
    from holdfast.lab.demo.steps import Demo  # noqa: PLC0415 - as above
    from holdfast.lab.demo.user_file import InputError  # noqa: PLC0415
    from holdfast.lab.folders import judged_demo  # noqa: PLC0415
    from holdfast.lab.prove import PROBLEMS  # noqa: PLC0415

    shown = Shown(quiet=as_json)
    try:
        with interrupted_once(), shown:
            result = Demo(options, shown).run()
    except (*PROBLEMS, InputError) as error:
        raise CommandError(str(error), code=EXIT_USAGE) from error
    except KeyboardInterrupt:
        raise InterruptedCommandError(kept_in(options.directory)) from None
    judged = judged_demo(result.verdict)
    if as_json:
        print(json.dumps({**judged.values, "seconds": round(result.seconds, 1)}))
    else:
        print_judged(shown.console, judged)
        if malformed := result.verdict.plan.malformed:
            shown.console.print(
                f"Malformed lines of the input, kept aside: {malformed:,}", highlight=False
            )
        shown.console.print(f"Report: {result.report}  ({result.seconds:.0f} s)", highlight=False)
        again = f"holdfast check {shlex.quote(str(options.directory))}"
        shown.console.print(f"Check the table again: {again}", highlight=False, soft_wrap=True)
    if judged.exit:
        raise typer.Exit(int(judged.exit))


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
