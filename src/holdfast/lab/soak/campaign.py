"""`make soak`: long campaigns of runs, in the background, resumable.

Each campaign has a file of JSON lines, one a finished run, written as it goes; a campaign that was
interrupted goes on where its file ends. A run counts for the code that it exercised and no other.
Owns the counting; the files are `background`'s, and what a run does is in the modules named below.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import holdfast
from holdfast.cluster import layout
from holdfast.cluster.layout import ClusterError
from holdfast.cluster.plan import PROXIES
from holdfast.lab import background
from holdfast.lab import soak as soak_package
from holdfast.lab.background import Results, Row
from holdfast.lab.run import Run
from holdfast.lab.steps.mishaps import failed

RESULTS = Path("docs") / "design" / "soak"
_MODULES = "_campaigns"  # so end the names of the modules here that hold CAMPAIGNS
NETWORK = "network"  # in a row: how links were broken, where there was one
UNKNOWN = "unknown"  # there: nobody can say
FAILURES_MAX = 3  # in a row that could not be made: something is wrong with the machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """`run` gets an empty directory and returns a result that can be written as JSON.

    Its "kept" says whether the run showed what it had to: True, False, or None when the run could
    not be made, which is repeated. `exercises` are the folders of src that it tells something of.
    `in_namespaces`: it breaks links, and what was kept by proxies, which show less, doesn't count.
    """

    name: str
    text: str
    runs: int
    run: Callable[[Path], dict[str, Any]]
    exercises: tuple[str, ...] = background.LAB
    in_namespaces: bool = False


def network_of(folder: Path) -> str | None:
    """Return how the clusters below a folder broke links; None: none had a network of its own.

    One by proxies makes all of it one by proxies. ClusterError: nobody can say.
    """
    networks = {layout.read(file.parent).network for file in folder.rglob(layout.DESCRIPTION)}
    return PROXIES if PROXIES in networks else next(iter(networks - {None}), None)


def network_said(folder: Path) -> str | None:
    """Return what a row says of the network of the clusters below a folder; None: of none."""
    try:
        return network_of(folder)
    except ClusterError:  # a description that is cut off, say
        return UNKNOWN


def in_namespaces(row: Row) -> bool:
    """Whether a row counts for links that are broken; older ones name no network and do.

    What is broken by proxies, or nobody can say by what, is broken.
    """
    return row.get("kept") is False or row.get(NETWORK) not in {PROXIES, UNKNOWN}


def why_not(row: Row) -> str:
    """Return why a row doesn't count for links that are broken."""
    if row.get(NETWORK) == PROXIES:
        return "by proxies, so it doesn't count; nor would the next"
    return "nobody can say how its links were broken, so it doesn't count"


def any_row(_row: Row) -> bool:
    return True


def not_judged(problem: Exception, run: Run | None) -> dict[str, Any]:
    """Return the result of a run whose history can't be judged; None: it never began.

    What its checks have seen broken stays broken.
    """
    not_kept = [] if run is None else failed(run)
    if not_kept:
        verdict = f"Not so: {'; '.join(not_kept)}. It can't be judged: {problem}"
        return {"kept": False, "verdict": verdict, "failed": not_kept}
    return {"kept": None, "verdict": f"The run could not be made: {problem}"}


def campaigns() -> list[Campaign]:
    """All of them: who adds a module changes none that is there, and ends none of its proofs."""
    names = sorted(each.name for each in iter_modules(soak_package.__path__))
    modules = [name for name in names if name.endswith(_MODULES)]
    assert modules, "the campaigns lie beside this module"
    found: list[Campaign] = []
    for name in modules:
        found += import_module(f"{soak_package.__name__}.{name}").CAMPAIGNS
    return found


def soak(
    campaign: Campaign,
    results: Path,
    *,
    runs: int | None = None,
    say: Callable[[str], None] = print,
) -> bool:
    """Bring a campaign to its number of runs. True if all of them, old and new, were kept."""
    wanted = campaign.runs if runs is None else runs
    results.mkdir(parents=True, exist_ok=True)
    counts = in_namespaces if campaign.in_namespaces else any_row
    with Results(results / f"{campaign.name}.jsonl", campaign.exercises, counts=counts) as done:
        say(f"{campaign.name}: {campaign.text} {len(done.rows)} of {wanted} runs are done.")
        if done.others:
            say(f"  {done.others} runs of other code don't count for this one")
        if done.passed_over:
            say(f"  {done.passed_over} runs by proxies, which show less, or by what nobody can "
                "say, don't count")  # fmt: skip
        failures = _bring_to(campaign, wanted, done, say)
    repeated = sum(row["not_made_before"] for row in done.rows) + failures
    if repeated:
        say(f"  {repeated} runs besides could not be made")
    kept = sum(row["kept"] is True for row in done.rows)
    say(f"{campaign.name}: {kept} of {len(done.rows)} runs kept what was promised.")
    return kept == len(done.rows) >= wanted


def _bring_to(campaign: Campaign, wanted: int, done: Results, say: Callable[[str], None]) -> int:
    """Make the runs that are missing; return how many in a row could not be made at the end."""
    failures = 0
    while len(done.rows) < wanted and failures < FAILURES_MAX:
        number = len(done.rows) + 1
        directory = Path(tempfile.mkdtemp(prefix=f"holdfast-soak-{campaign.name}-"))
        begin_s = time.monotonic()
        try:
            result = campaign.run(directory / "run")
        except Exception:
            say(f"{campaign.name} {number}: what there is of it stays in {directory}")
            raise
        seconds = time.monotonic() - begin_s
        word = {True: "kept", False: "BROKEN", None: "could not be made"}[result["kept"]]
        say(f"{campaign.name} {number}/{wanted}: {word} in {seconds:.0f} s. "
            f"{result.get('verdict', '')}")  # fmt: skip
        if result["kept"] is None:
            say(f"{campaign.name} {number}: what there is of it stays in {directory}")
            failures += 1
            continue
        network = network_said(directory)
        row: Row = {
            "run": number,
            "version": holdfast.__version__,
            "seconds": round(seconds, 1),
            "not_made_before": failures,
            **({} if network is None else {NETWORK: network}),
            **result,
        }
        done.add(row)
        failures = 0
        if result["kept"]:
            shutil.rmtree(directory)
        else:
            say(f"{campaign.name} {number}: its history stays in {directory}")
        if len(done.rows) < number:
            say(f"{campaign.name} {number}: {why_not(row)}")
            break
    return failures


def _soaked(
    campaign: Campaign, results: Path, runs: int | None, say: Callable[[str], None]
) -> bool:
    """Bring a campaign to its number of runs; an error of ours ends this one and no other.

    It is not repeated, as what could not be made is: nobody knows what was seen before.
    """
    try:
        return soak(campaign, results, runs=runs, say=say)
    except background.ResultsError:
        raise
    except Exception as problem:  # noqa: BLE001 - whatever it is, the others go on
        say(traceback.format_exc().rstrip())
        told = f"{type(problem).__name__}: {problem}"
        say(f"{campaign.name}: this is an error of ours, please report it: {told}")
        return False


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="holdfast.lab.soak", description=__doc__)
    parser.add_argument("--campaign", action="append", help="only this one; may be repeated")
    parser.add_argument("--runs", type=int, help="bring each to so many runs")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--list", action="store_true", help="name the campaigns")
    options = parser.parse_args(arguments)
    every = campaigns()
    if options.list:
        sys.stdout.writelines(f"{each.name} ({each.runs}): {each.text}\n" for each in every)
        return 0
    unknown = set(options.campaign or ()) - {each.name for each in every}
    if unknown:
        parser.error(f"no campaign {', '.join(sorted(unknown))}; --list names them")

    def say(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    # So that a run's cluster is taken down with it, as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    chosen = [each for each in every if not options.campaign or each.name in options.campaign]
    try:
        outcomes = [_soaked(each, options.results, options.runs, say) for each in chosen]
    except KeyboardInterrupt:
        say("Interrupted; the next time it goes on from here.")
        return 130
    except background.ResultsError as error:
        say(f"error: {error}")
        return 2
    return 0 if all(outcomes) else 1
