"""Puts the same steps to Apache Kafka and to us, and prints what is answered differently.

A difference that is known stands with its reason in explained.toml; one that is not makes the exit
status 1, and so does one that is explained and is no more.

    make compare [ARGS="--only create --json"]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from compare import cluster_steps, record_steps, sides, topic_steps
from compare.answers import Difference, differences
from compare.asking import Side
from compare.reasons import reason_of

EXPLAINED = Path(__file__).with_name("explained.toml")
AREAS = {"topics": topic_steps, "records": record_steps, "cluster": cluster_steps}


def main() -> int:
    """Run; 0: no difference is without a reason, 1: there is one, 2: it can't be run."""
    parser = argparse.ArgumentParser(prog="compare", description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", choices=AREAS, help="the steps of one area")
    parser.add_argument("--all", action="store_true", help="show explained differences, too")
    parser.add_argument("--json", action="store_true", help="print the differences as JSON")
    args = parser.parse_args()
    if not sides.is_there():
        print("compare: there is no Apache Kafka here: `make apache` brings it", file=sys.stderr)
        return 2
    areas = [AREAS[args.only]] if args.only else list(AREAS.values())
    with tempfile.TemporaryDirectory(prefix="compare-") as directory:
        answers = {}
        for name, start in (("ours", sides.ours), ("theirs", sides.theirs)):
            print(f"compare: asking {name}", file=sys.stderr)
            with start(Path(directory)) as address:
                side = Side(address)
                for area in areas:
                    area.steps(side)
                answers[name] = side.answers
    return report(answers["ours"], answers["theirs"], args)


def report(
    ours: dict[str, dict[str, str]], theirs: dict[str, dict[str, str]], args: argparse.Namespace
) -> int:
    """Print what differs, with its reason where there is one."""
    found = [
        difference
        for step in theirs
        for difference in differences(step, ours.get(step, {}), theirs[step])
    ]
    reasons = tomllib.loads(EXPLAINED.read_text(encoding="utf-8"))["difference"]
    explained = {one: reason_of(one, reasons) for one in found}
    unexplained = [one for one in found if explained[one] is None]
    unused = [reason for reason in reasons if reason not in explained.values()]
    if args.json:
        rows = [{**one._asdict(), "reason": (explained[one] or {}).get("why")} for one in found]
        print(json.dumps(rows, indent=1))
    else:
        show(found if args.all else unexplained, explained)
        values = sum(len(answer) for answer in theirs.values())
        print(
            f"{len(theirs)} steps, {values} values: {len(found)} differ, {len(unexplained)} of"
            f" them without a reason in {EXPLAINED.name}"
        )
    if args.only is None:
        for reason in unused:
            print(f"explained, and no difference any more: {reason['step']} {reason['path']}")
    return 1 if unexplained or (unused and args.only is None) else 0


def show(found: list[Difference], explained: dict[Difference, dict[str, Any] | None]) -> None:
    """Print differences, those of one step together."""
    step = None
    for one in found:
        if one.step != step:
            print(f"\n{one.step}")
            step = one.step
        print(f"    {one.path}\n        ours:   {one.ours}\n        theirs: {one.theirs}")
        reason = explained[one]
        if reason:
            print(f"        why:    {reason['why']}")


sys.exit(main())
