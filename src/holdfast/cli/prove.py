"""`holdfast prove`: break a cluster on purpose, and judge what it kept."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn

import typer

from holdfast.cli.exit_status import InterruptedCommandError
from holdfast.cli.interrupts import interrupted_once, kept_in

if TYPE_CHECKING:
    from holdfast.cli.proving.prove_elsewhere import Hold
    from holdfast.lab.parameters import Parameters
    from holdfast.lab.scenario import Scenario

PAIRS = "KEY=VALUE"
REPLAY = "replay"
PROFILE = "lab"  # where none is named
AS_IT_IS = (
    "--all runs every scenario as it is: it takes --engine, --profile, --output, --beside, "
    "--no-control."
)
OF_ALL = frozenset({"engine", "profile"})  # settings that --all takes for every scenario


class Place(NamedTuple):
    """What was said of a cluster that is there."""

    servers: str | None
    nodes: Path | None
    may_break: bool

    @property
    def is_given(self) -> bool:
        return self != Place(None, None, may_break=False)


def prove(
    scenario: Annotated[str, typer.Argument(help="Which experiment; --list names them.")] = "",
    acks: Annotated[str | None, typer.Option(help="0, 1 or all.")] = None,
    replication_factor: Annotated[int | None, typer.Option(help="Replicas of a partition.")] = None,
    min_isr: Annotated[int | None, typer.Option(help="min.insync.replicas of the topic.")] = None,
    brokers: Annotated[int | None, typer.Option(help="Brokers of the cluster.")] = None,
    controllers: Annotated[int | None, typer.Option(help="Controllers of the cluster.")] = None,
    partitions: Annotated[int | None, typer.Option(help="Partitions of the topic.")] = None,
    rate: Annotated[float | None, typer.Option(help="Events a second.")] = None,
    duration: Annotated[
        float | None, typer.Option(help="Seconds of each steady stretch between faults.")
    ] = None,
    signal: Annotated[str | None, typer.Option(help="KILL, TERM or both.")] = None,
    kills: Annotated[int | None, typer.Option(help="How many, where a scenario repeats.")] = None,
    count: Annotated[int | None, typer.Option(help="Events of a schedule that counts.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of what is drawn at random: the same one does the same.")
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(
            help="Of replay: a plan of the simulator, such as a replay's schedule.json.",
            metavar="FILE",
        ),
    ] = None,
    attempts: Annotated[
        int | None, typer.Option(help="Of replay: until something is broken, so often at most.")
    ] = None,
    elr: Annotated[
        bool | None, typer.Option("--elr/--no-elr", help="Eligible leader replicas.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="lab: short sessions. kafka: Kafka's defaults.")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="embedded: brokers of our own. apache: those of an Apache Kafka on this machine "
            "(KAFKA_HOME, or `make apache`). apache-3.9: of one with ZooKeeper "
            "(KAFKA_OLDER_HOME), for controller-down."
        ),
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option(metavar=PAIRS, help="For every node; may be repeated.")
    ] = None,
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT,...",
            help="Brokers of a cluster that is there, for scenarios that break nothing: a topic "
            "and groups of its own are made and removed.",
        ),
    ] = None,
    nodes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            help="A cluster that is there, and the commands that break and mend its brokers, such "
            "as by ssh, docker or kubectl (docs/how-to/prove.md).",
        ),
    ] = None,
    i_may_break_this_cluster: Annotated[
        bool,
        typer.Option(
            "--i-may-break-this-cluster",
            help="Run the commands of --nodes; without it they are only shown.",
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "--data-dir",
            help="Where history and report go; new or empty.",
            metavar="DIR",
        ),
    ] = None,
    control: Annotated[bool, typer.Option(help="Also run what must fail.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
    every: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Every scenario, one page of all; in a folder with --output it goes on where it "
            "ended: remove that folder to begin anew. --engine takes several, joined by commas; "
            "--profile kafka has all of them under Kafka's defaults.",
        ),
    ] = False,
    beside: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="With --all: run nothing, and hold the folder of --output against this one of "
            "another --all. One page of both; status 1 where verdicts differ, as of diff, 2 where "
            "none does and some were made in neither.",
        ),
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Name the scenarios.")] = False,
) -> None:
    """Run a scenario on a cluster of its own, and say with evidence what was kept.

    The promise of the settings is stated before the run; each scenario has settings of its own,
    which options replace. Exit status: 0 it was kept, 1 it was broken, 2 the run could not be made.
    """
    flags: dict[str, Any] = {
        "acks": acks,
        "replication_factor": replication_factor,
        "min_isr": min_isr,
        "brokers": brokers,
        "controllers": controllers,
        "partitions": partitions,
        "rate": rate,
        "duration_s": duration,
        "signal": signal,
        "kills": kills,
        "count": count,
        "seed": seed,
        "elr": elr,
        "profile": profile,
        "engine": engine,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    place = Place(servers=bootstrap_server, nodes=nodes, may_break=i_may_break_this_cluster)
    if show_list:
        more = bool(plan or attempts or every or beside)
        if scenario or given or config or output or more or not control or place.is_given:
            fail("--list names the scenarios and runs none: leave the rest out.")
        print_list(as_json=as_json)
        return
    if importlib.util.find_spec("jinja2") is None:
        fail("The report needs jinja2: pip install 'holdfast[lab]'.")
    if beside and not every:
        fail("--beside goes with --all: it holds the folder of one --all against another's.")
    if every:
        if scenario or given.keys() - OF_ALL or config or plan or attempts or place.is_given:
            fail(AS_IT_IS)
        if beside:
            hold_beside(output, beside, given, control=control, as_json=as_json)
        run_all(output, given, control=control, as_json=as_json)
    if not scenario:
        fail("Which scenario? `holdfast prove --list` names them.")
    if scenario == REPLAY:
        if place.is_given:
            fail(f"{REPLAY} is done to a cluster of its own: leave the flags of one there out.")
        replay(given, plan, attempts, config, output, control=control, as_json=as_json)
    if plan is not None or attempts is not None:
        fail(f"--plan and --attempts go with {REPLAY}: {scenario} is not drawn.")
    found, parameters, begin, hold = prepared(scenario, given, config, place, control=control)
    directory = output_directory(output, scenario)
    from holdfast.lab.parameters import LabError  # noqa: PLC0415 - as below
    from holdfast.lab.prove import prove as run_proof  # noqa: PLC0415 - `--list` needs none of it

    say = teller(as_json=as_json)
    try:
        with interrupted_once(), hold(say):
            outcome = run_proof(
                found,
                parameters,
                directory,
                command=command_line(),
                control=control,
                say=say,
                **begin,
            )
    except LabError as error:  # another lab holds the cluster
        fail(str(error))
    except KeyboardInterrupt:
        raise InterruptedCommandError(kept_in(directory)) from None
    tell_end(outcome.as_json(), outcome.report, directory, say, as_json=as_json)
    if output is None:
        for line in tidy():
            say(line)
    raise typer.Exit(int(outcome.exit))


def teller(*, as_json: bool) -> Callable[[str], None]:
    """Return what tells who watches a run, and nobody once they have gone: the run goes on.

    Raised from here, in whatever thread, a closed pipe would end what undoes faults, and pass for a
    broken promise.
    """

    def say(line: str) -> None:
        with suppress(OSError):
            print(line, file=sys.stderr if as_json else sys.stdout, flush=True)

    return say


def tell_end(
    told: dict[str, Any],
    report: Path | None,
    directory: Path,
    say: Callable[[str], None],
    *,
    as_json: bool,
) -> None:
    """Say what a run came to, or where that lies."""
    if as_json:
        with suppress(OSError):  # the last flush of all meets it again, and has a status for it
            print(json.dumps(told, indent=2), flush=True)
        return
    if report is not None:
        say(f"Report:  {report}")
    say(f"History: {directory}")


def prepared(
    name: str, given: dict[str, Any], config: list[str] | None, place: Place, *, control: bool
) -> tuple[Scenario, Parameters, dict[str, Any], Hold]:
    """Return a scenario, its parameters, what else `prove` is told, and what holds its cluster.

    Exit with 2: not so.
    """
    from holdfast.cluster.layout import ClusterError  # noqa: PLC0415 - `--list` needs none of it
    from holdfast.lab.parameters import LabError  # noqa: PLC0415 - as above
    from holdfast.lab.scenario import load_scenario  # noqa: PLC0415 - as above

    try:
        found = load_scenario(name)
        if place.is_given:
            from holdfast.cli.proving import prove_elsewhere  # noqa: PLC0415 - hardly anyone comes here

            told = given | ({"config": config} if config else {})
            parameters, begin, hold = prove_elsewhere.prepared(
                found, told, **place._asdict(), control=control
            )
            return found, parameters, {"begin": begin}, hold
        if config:
            values = settings(pairs(config), given.get("engine"))
            given["config"] = {**found.defaults.config, **values}
        parameters = found.with_flags(given)
        refuse_without_nodes(parameters.engine)
    except (LabError, ClusterError) as error:
        fail(str(error))
    return found, parameters, {}, lambda _say: nullcontext()


def refuse_without_nodes(engine: str) -> None:
    """ClusterError: nothing on this machine is such a node, so nothing is promised of any."""
    from holdfast.cluster.layout import APACHE, OLDER  # noqa: PLC0415 - `--list` needs none of it

    if engine in {APACHE, OLDER}:
        from holdfast.cluster.apache import find_home  # noqa: PLC0415 - only for its nodes

        find_home(with_zookeeper=engine == OLDER)


def run_all(
    output: Path | None, given: Mapping[str, str], *, control: bool, as_json: bool
) -> NoReturn:
    """Run every scenario on the engines that are given, and end with what they come to."""
    from holdfast.cli.proving import prove_all  # noqa: PLC0415 - hardly anyone comes here
    from holdfast.cluster import ClusterError  # noqa: PLC0415 - as above
    from holdfast.cluster.layout import ENGINES  # noqa: PLC0415 - as above
    from holdfast.lab.parameters import LabError  # noqa: PLC0415 - as above

    engines, profile = given.get("engine", "embedded").split(","), given.get("profile", PROFILE)
    for engine in engines:
        if engine not in ENGINES:
            fail(f"--engine {shlex.quote(engine)}: it is one of {', '.join(ENGINES)}.")
    refuse_profile(given)
    directory = matrix_directory(output, profile)

    say = teller(as_json=as_json)
    try:
        with interrupted_once():
            made = prove_all.prove_all(
                directory, engines, profile=profile, control=control, say=say
            )
    except KeyboardInterrupt:
        words = f"The same command with --output {shlex.quote(str(directory))} goes on from there."
        raise InterruptedCommandError(words) from None
    except (LabError, ClusterError, OSError) as error:
        fail(str(error))
    if as_json:
        print(prove_all.as_json(made.rows), flush=True)
    elif made.page is not None:
        print(f"Matrix:  {made.page}")
    if made.stopped is not None:
        print(f"holdfast prove: {made.stopped}", file=sys.stderr)
    raise typer.Exit(int(made.status))


def hold_beside(
    output: Path | None, other: Path, given: Mapping[str, str], *, control: bool, as_json: bool
) -> NoReturn:
    """Compare two folders of `prove --all`, and end with whether verdicts differ; run nothing."""
    from holdfast.cli.proving import prove_beside  # noqa: PLC0415 - hardly anyone comes here
    from holdfast.lab.parameters import LabError  # noqa: PLC0415 - as above

    if not control:
        fail("--no-control has no effect with --beside, which runs nothing.")
    if output and "profile" in given:
        fail("--profile has no effect with --beside and --output, which names the folder.")
    refuse_profile(given)
    engines = given["engine"].split(",") if "engine" in given else []
    try:
        directory = matrix_directory(output, given.get("profile", PROFILE))
        found = prove_beside.compare(directory, other.absolute(), engines)
        page = prove_beside.write(found)
    except LabError as error:
        fail(str(error))
    if as_json:
        print(json.dumps(prove_beside.as_json(found, page), indent=2), flush=True)
    else:
        for line in prove_beside.lines(found, page):
            print(line)
    raise typer.Exit(found.status)


def refuse_profile(given: Mapping[str, str]) -> None:
    """End with status 2 where there is no such profile."""
    from holdfast.lab.parameters import PROFILES  # noqa: PLC0415 - `--list` needs none of it

    profile = given.get("profile", PROFILE)
    if profile not in PROFILES:
        fail(f"--profile {shlex.quote(profile)}: it is {' or '.join(PROFILES)}.")


def matrix_directory(output: Path | None, profile: str) -> Path:
    """Where all scenarios' runs go, or have gone."""
    # A row says something of one profile alone, so each has a folder of its own.
    folder = "matrix" if profile == PROFILE else f"matrix-{profile}"
    return output.absolute() if output else proofs_directory().parent / folder


def replay(
    given: dict[str, Any],
    plan: Path | None,
    attempts: int | None,
    config: list[str] | None,
    output: Path | None,
    *,
    control: bool,
    as_json: bool,
) -> NoReturn:
    """Replay a plan of the simulator, and end with what came of it."""
    from holdfast.cli.proving import prove_replay  # noqa: PLC0415 - hardly anyone comes here
    from holdfast.cluster.layout import EMBEDDED, ClusterError  # noqa: PLC0415 - as above
    from holdfast.lab.parameters import LabError  # noqa: PLC0415 - as above
    from holdfast.lab.scenario import load_scenario  # noqa: PLC0415 - as above

    strange = [*(given.keys() - {"seed", "engine"}), *(["config"] if config else [])]
    if strange:
        option = min(strange).removesuffix("_s").replace("_", "-")
        fail(f"--{option} has no effect in {REPLAY}: the plan that is drawn says what there is.")

    engine = given.get("engine", EMBEDDED)
    try:
        refuse_without_nodes(load_scenario(REPLAY).with_flags({"engine": engine}).engine)
    except (LabError, ClusterError) as error:
        fail(str(error))
    say = teller(as_json=as_json)
    directory = output_directory(output, REPLAY)
    try:
        with interrupted_once():
            found = prove_replay.plan_for(given.get("seed"), plan)
            drawn = plan is None and "seed" not in given
            replayed = prove_replay.replay(
                found,
                directory,
                engine=engine,
                attempts=1 if attempts is None else attempts,
                control=control,
                command=f"{command_line()} {found.again}" if drawn else command_line(),
                say=say,
            )
    except LabError as error:
        fail(str(error))
    except KeyboardInterrupt:
        begun = sorted(directory.glob("attempt-*"), key=lambda path: path.stat().st_mtime_ns)
        raise InterruptedCommandError(kept_in([directory, *begun][-1])) from None
    tell_end(replayed.as_json(), replayed.outcome.report, directory, say, as_json=as_json)
    if output is None:
        for line in tidy():
            say(line)
    raise typer.Exit(int(replayed.exit))


def print_list(*, as_json: bool) -> None:
    """Name every scenario with its one sentence."""
    from holdfast.lab.scenario import DRAWN, SCENARIOS, load_scenario  # noqa: PLC0415 - as above

    names = [*SCENARIOS, *DRAWN]
    if as_json:
        rows = [{"name": name, "summary": load_scenario(name).summary} for name in names]
        print(json.dumps(rows, indent=2))
        return
    width = max(len(name) for name in names)
    for name in names:
        print(f"{name:<{width}}  {load_scenario(name).summary}")


def pairs(items: list[str]) -> dict[str, str]:
    """Read KEY=VALUE items; exit with 2 when one isn't."""
    found = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            fail(f"--config {item}: it must be {PAIRS}.")
        found[key.strip()] = value.strip()
    return found


def settings(values: dict[str, str], engine: str | None) -> dict[str, str]:
    """Return settings for every node; what has an effect on an Apache Kafka, that one says."""
    return with_effect(values) if engine in {None, "embedded"} else values


def with_effect(values: dict[str, str]) -> dict[str, str]:
    """Return these settings; exit with 2 for one without effect: the proof would not be of it."""
    from holdfast.cli.shared_options import unknown_keys  # noqa: PLC0415 - `--list` needs none of it
    from holdfast.config.registry import NODE  # noqa: PLC0415

    for name in values:
        key = NODE.get(name)
        if key is None or not key.effect:
            advice = unknown_keys([name], NODE)
            fail(
                f"--config {name}: it has no effect on a node, so nothing would be proven.{advice}"
            )
    return values


def output_directory(output: Path | None, scenario: str) -> Path:
    """The folder that was asked for, or a new one under the user's state directory.

    Where it can't be written the command ends: nobody could look at the run again.
    """
    if output is None:
        from holdfast.lab.keeping import name_of  # noqa: PLC0415 - `--list` needs none of it

        directory = proofs_directory() / name_of(scenario, os.getpid())
        otherwise = "--output names another place, or XDG_STATE_HOME one for all commands"
    else:
        directory = output.absolute()
        otherwise = "name another --output"
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            fail(f"--output {directory}: it must be a new or an empty directory.")
        there = directory if directory.exists() else directory.parent
        if not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        fail(f"{directory} can't be used: {error.strerror}. Run it again elsewhere: {otherwise}.")
    return directory


def proofs_directory() -> Path:
    """Where runs go that nobody has named a folder for."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "holdfast" / "proofs"


def tidy() -> Iterator[str]:
    """Remove older proofs that were kept; say what was removed."""
    from holdfast.lab.keeping import KEPT_MAX, remove_old  # noqa: PLC0415 - as above

    try:
        gone = remove_old(proofs_directory())
    except OSError as error:
        yield f"Older proofs can't be removed: {error}."
        return
    if gone:
        yield f"Removed: {', '.join(gone)}. Of proofs that were kept the newest {KEPT_MAX} stay."


def command_line() -> str:
    """The command as it was typed, without what names this run's own folder."""
    words = ["holdfast", *sys.argv[1:]]
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in {"--output", "--data-dir"}:
            skip = True
        elif not word.startswith(("--output=", "--data-dir=")) and word != "--json":
            kept.append(word)
    return shlex.join(kept)


def fail(text: str) -> NoReturn:
    """End with status 2: the run could not be made."""
    print(f"holdfast prove: {text}", file=sys.stderr)
    raise typer.Exit(2)
