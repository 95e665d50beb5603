"""Puts the same steps to Apache Kafka and to us, and prints what is answered differently.

A difference that is meant stands with its reason in explained.toml, one that is to be mended in
to_mend.toml, with what to do. Any other makes the exit status 1, and so does an entry of these for
which there is no difference any more.

    make compare [ARGS="--only topics --json"]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from compare import (
    classic_steps,
    cluster_steps,
    compaction_steps,
    consumer_change_steps,
    consumer_steps,
    coordinator_steps,
    group_setting_steps,
    migration_steps,
    odd_group_steps,
    offset_steps,
    rebalance_steps,
    record_steps,
    sides,
    topic_steps,
)
from compare.answers import Difference, differences
from compare.asking import Side
from compare.reasons import EXPLAINED, MEND, TO_MEND, WHY, Reason, known, reason_of, unused

AREAS = {
    "topics": topic_steps,
    "records": record_steps,
    "cluster": cluster_steps,
    "group-settings": group_setting_steps,
    "coordinator": coordinator_steps,
    "offsets": offset_steps,
    "classic": classic_steps,
    "rebalances": rebalance_steps,
    "consumers": consumer_steps,
    "migrations": migration_steps,
    "odd-groups": odd_group_steps,
    "compaction": compaction_steps,
    "changes": consumer_change_steps,  # the last: it takes the protocol away for a while
}


def main() -> int:
    """Run; 0: all that differs is known, 1: not all, 2: it can't be run."""
    parser = argparse.ArgumentParser(prog="compare", description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--only", choices=AREAS, nargs="+", default=[], help="the steps of these areas"
    )
    parser.add_argument("--all", action="store_true", help="show known differences, too")
    parser.add_argument("--json", action="store_true", help="print the differences as JSON")
    args = parser.parse_args()
    if not sides.is_there():
        print("compare: there is no Apache Kafka here: `make apache` brings it", file=sys.stderr)
        return 2
    areas = [AREAS[name] for name in args.only or AREAS]
    waited_in_vain = False  # what comes behind in that area is not asked, and so differs
    with tempfile.TemporaryDirectory(prefix="compare-") as directory:
        answers = {}
        for name, start in (("ours", sides.ours), ("theirs", sides.theirs)):
            print(f"compare: asking {name}", file=sys.stderr)
            with start(Path(directory)) as address:
                side = Side(address)
                for area in areas:
                    try:
                        area.steps(side)
                    except TimeoutError as error:
                        waited_in_vain = True
                        print(f"compare: {name}: {error}", file=sys.stderr)
                answers[name] = side.answers
    return report(answers["ours"], answers["theirs"], args) or int(waited_in_vain)


def report(
    ours: dict[str, dict[str, str]], theirs: dict[str, dict[str, str]], args: argparse.Namespace
) -> int:
    """Print what differs, with what is known of it."""
    found = [
        difference
        for step in theirs
        for difference in differences(step, ours.get(step, {}), theirs[step])
    ]
    reasons = known()
    explained = {one: reason_of(one, reasons) for one in found}
    unexplained = [one for one in found if explained[one] is None]
    used = list(explained.values())
    idle = [] if args.only else unused(reasons, used)
    if args.json:
        rows = [{**one._asdict(), **_comment(explained[one])} for one in found]
        print(json.dumps(rows, indent=1))
    else:
        show(found if args.all else unexplained, explained)
        values = sum(len(answer) for answer in theirs.values())
        mends = sum(reason is not None and MEND in reason for reason in used)
        print(
            f"{len(theirs)} steps, {values} values: {len(found)} differ;"
            f" {len(found) - mends - len(unexplained)} are meant ({EXPLAINED.name}), {mends} are to"
            f" be mended ({TO_MEND.name}), {len(unexplained)} are not known"
        )
    for reason in idle:
        named = ", ".join(f"{key}={reason[key]!r}" for key in reason if key not in (WHY, MEND))
        print(f"known, and no difference any more: {named}", file=sys.stderr)
    return 1 if unexplained or idle else 0


def show(found: list[Difference], explained: dict[Difference, Reason | None]) -> None:
    """Print differences, those of one step together."""
    step = None
    for one in found:
        if one.step != step:
            print(f"\n{one.step}")
            step = one.step
        print(f"    {one.path}\n        ours:   {one.ours}\n        theirs: {one.theirs}")
        for word, text in _comment(explained[one]).items():
            print(f"        {word + ':':8}{text}")


def _comment(reason: Reason | None) -> Reason:
    """Return what an entry says beside what it matches."""
    return {} if reason is None else {key: reason[key] for key in (WHY, MEND) if key in reason}


sys.exit(main())
