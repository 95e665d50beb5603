"""`holdfast reassign-partitions`: kafka-reassign-partitions' flags, and the purposes behind them.

Owns options and which of them go together; `mover.py` does what they say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.exit_status import CommandError, refuse_if
from holdfast.cli.reassignment.mover import Mover
from holdfast.cli.reassignment.reassignment_files import read_assignment, read_brokers, read_topics
from holdfast.cli.shared_options import (
    AsJson,
    BootstrapServer,
    ClusterDir,
    connected,
    refuse_idle,
    target,
)
from holdfast.clients.placement_plan import PlanError
from holdfast.wire.administration import AdminError

FROM_FILE = "--reassignment-json-file"
TOPICS_FILE = "--topics-to-move-json-file"
BY_PURPOSE = ("--replication-factor", "--remove-broker", "--spread")
LOOKS_FOR_MOVES = ("--list", "--verify", "--cancel")
GOES_WITH: Mapping[str, Sequence[str]] = {
    "--topic": (*BY_PURPOSE, *LOOKS_FOR_MOVES),
    "--dry-run": BY_PURPOSE,
    "--no-wait": BY_PURPOSE,
    TOPICS_FILE: ("--generate",),
    "--broker-list": ("--generate",),
    FROM_FILE: ("--execute", "--verify", "--cancel"),
    "--throttle": (*BY_PURPOSE, "--execute"),
    "--additional": (*BY_PURPOSE, "--execute"),
    "--preserve-throttles": ("--verify", "--cancel"),
    "--disable-rack-aware": (*BY_PURPOSE, "--generate"),
    "--json": (*BY_PURPOSE, "--list", "--verify"),
}
# With a plan that is only printed, or with topics that a file names, these have no effect.
IDLE_TOGETHER = (
    ("--dry-run", ("--no-wait", "--throttle", "--additional")),
    (FROM_FILE, ("--topic",)),
)

Json = Annotated[
    Path | None,
    typer.Option("--reassignment-json-file", metavar="FILE", help="Where replicas should go."),
]
TopicsJson = Annotated[
    Path | None,
    typer.Option("--topics-to-move-json-file", metavar="FILE", help="With --generate: topics."),
]
BrokerList = Annotated[
    str | None,
    typer.Option("--broker-list", metavar="ID,...", help="With --generate: brokers to use."),
]
Generate = Annotated[bool, typer.Option("--generate", help="Print a proposal, change nothing.")]
Execute = Annotated[bool, typer.Option("--execute", help="Begin the file's reassignment.")]
Verify = Annotated[
    bool,
    typer.Option(
        "--verify",
        help="Say what is done of the file, or without one of all that moves; clear the throttle "
        "when all is.",
    ),
]
Cancel = Annotated[
    bool, typer.Option("--cancel", help="Call back the file's partitions, or all that move.")
]
ListMoves = Annotated[bool, typer.Option("--list", help="Show what is being moved.")]
Throttle = Annotated[
    int | None,
    typer.Option("--throttle", metavar="BYTES", help="Bytes a second that moves may take.", min=1),
]
Additional = Annotated[
    bool, typer.Option("--additional", help="Begin, or change the throttle, while others move.")
]
PreserveThrottles = Annotated[
    bool, typer.Option("--preserve-throttles", help="With --verify, --cancel: leave it on.")
]
DisableRackAware = Annotated[
    bool, typer.Option("--disable-rack-aware", help="Place replicas as if there were no racks.")
]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="NAME", help="These topics only; may be repeated."),
]
Factor = Annotated[
    int | None,
    typer.Option("--replication-factor", metavar="N", help="So many replicas each.", min=1),
]
RemoveBroker = Annotated[
    list[int] | None,
    typer.Option("--remove-broker", metavar="ID", help="Move all away from it; repeatable."),
]
Spread = Annotated[
    bool, typer.Option("--spread", help="Even out over all brokers, new ones included.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the reassignment, change nothing.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Return when the move has begun.")]


def reassign_partitions(
    *,
    bootstrap_server: BootstrapServer = None,
    data_dir_option: ClusterDir = None,
    topic: Topics = None,
    replication_factor: Factor = None,
    remove_broker: RemoveBroker = None,
    spread: Spread = False,
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    generate: Generate = False,
    execute: Execute = False,
    verify: Verify = False,
    cancel: Cancel = False,
    list_moves: ListMoves = False,
    topics_to_move_json_file: TopicsJson = None,
    broker_list: BrokerList = None,
    reassignment_json_file: Json = None,
    throttle: Throttle = None,
    additional: Additional = False,
    preserve_throttles: PreserveThrottles = False,
    disable_rack_aware: DisableRackAware = False,
    as_json: AsJson = False,
) -> None:
    """Move partitions to other brokers, of any Kafka.

    By purpose: --replication-factor N (with --topic), --remove-broker ID, --spread; it waits until
    all has arrived. Or with kafka-reassign-partitions' flags and files: --generate, --execute,
    --verify, --cancel, --list.
    """
    given = {
        "--topic": topic,
        "--dry-run": dry_run,
        "--no-wait": no_wait,
        TOPICS_FILE: topics_to_move_json_file,
        "--broker-list": broker_list,
        FROM_FILE: reassignment_json_file,
        "--throttle": throttle,
        "--additional": additional,
        "--preserve-throttles": preserve_throttles,
        "--disable-rack-aware": disable_rack_aware,
        "--json": as_json,
    }
    chosen = {
        "--replication-factor": replication_factor is not None,
        "--remove-broker": bool(remove_broker),
        "--spread": spread,
        "--generate": generate,
        "--execute": execute,
        "--verify": verify,
        "--cancel": cancel,
        "--list": list_moves,
    }
    by_purpose = _check_combination([each for each, is_on in chosen.items() if is_on], given)
    named = None if reassignment_json_file is None else read_assignment(reassignment_json_file)
    moved = None if topics_to_move_json_file is None else read_topics(topics_to_move_json_file)
    used = None if broker_list is None else read_brokers(broker_list)
    with connected(target(bootstrap_server, data_dir_option)) as driver:
        mover = Mover(driver, as_json=as_json, throttle=throttle, racks=not disable_rack_aware)
        try:
            mover.check_topics(topic or [])
            if list_moves:
                mover.show_moves(topic or [])
            elif generate:
                assert moved is not None, "checked above"
                assert used is not None, "checked above"
                mover.propose(moved, used)
            elif by_purpose:
                plan = mover.plan(topic or [], replication_factor, remove_broker or [], spread)
                if not plan and not dry_run:
                    mover.go_on(mover.under_way(topic or []), wait=not no_wait)
                else:
                    mover.carry_out(plan, dry_run=dry_run, wait=not no_wait, additional=additional)
            elif execute:
                assert named is not None, "checked above"
                mover.execute(named, additional=additional)
            else:
                finish = mover.verify if verify else mover.cancel
                if named is None:
                    finish(mover.under_way(topic or []), keep=preserve_throttles, topics=topic)
                else:
                    finish(named, keep=preserve_throttles)
        except (AdminError, PlanError) as error:
            raise CommandError(str(error)) from None


def _check_combination(actions: Sequence[str], given: Mapping[str, object]) -> bool:
    """Return whether purposes say what to do. CommandError: that isn't clear, or some is idle."""
    by_purpose = bool(actions) and all(each in BY_PURPOSE for each in actions)
    refuse_if(
        not by_purpose and len(actions) != 1,
        "Say what to do with one of --replication-factor, --remove-broker and --spread (which "
        "go together), or one of --generate, --execute, --verify, --cancel, --list.",
    )
    refuse_if(
        actions == ["--generate"] and None in (given[TOPICS_FILE], given["--broker-list"]),
        f"--generate takes {TOPICS_FILE} FILE and --broker-list ID,...",
    )
    refuse_if(
        "--replication-factor" in actions and not given["--topic"],
        "--replication-factor takes --topic NAME: of which topics?",
    )
    refuse_if(
        actions == ["--execute"] and given[FROM_FILE] is None, f"--execute takes {FROM_FILE} FILE."
    )
    refuse_idle(actions[0], given, GOES_WITH)
    for with_, idle in IDLE_TOGETHER:
        for option in idle:
            refuse_if(given[with_] and given[option], f"{option} has no effect with {with_}.")
    return by_purpose
