"""`holdfast cut`, `isolate`, `heal`, `slow`, `lose`, `drop-responses`: one call of `Links` each.

Owns their options, and the one line that says what was changed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.local.addressing import place_named
from holdfast.cli.shared_options import AsJson, DataDir, data_dir
from holdfast.cluster import LocalCluster
from holdfast.cluster.network.links.link_calls import Links

WHERE = (
    "A node's id as in `status`, controller:active or leader:TOPIC-PARTITION; a zone; client-ZONE "
    "(`client` without zones), or host, which is whoever comes from outside; or brokers, "
    "controllers, clients, all."
)
A = Annotated[str, typer.Argument(metavar="A", help=WHERE)]
B = Annotated[str, typer.Argument(metavar="B", help="The same.")]
OneWay = Annotated[
    bool, typer.Option("--one-way", help="Only what A sends to B; B still reaches A.")
]
Reset = Annotated[
    bool,
    typer.Option(
        "--reset", help="Answer what is sent with a reset. Without it packets vanish in silence."
    ),
]
Change = list[tuple[str, str]]


def cut(
    a: A,
    b: B,
    one_way: OneWay = False,
    reset: Reset = False,
    data_dir_option: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Let nothing pass between A and B, as if the cable were pulled.

    Packets vanish: nobody is told. Connections stay open, send again and again, and go on some
    time after `holdfast heal`.

    Examples: `holdfast cut 0 1`; `holdfast cut a b` for two zones; `holdfast cut 0 controllers
    --one-way`, so that nobody hears a broker that hears all.
    """
    cluster, (a, b) = _opened(data_dir_option, a, b)
    changed = cluster.links().cut(a, b, one_way=one_way, reset=reset)
    with_resets = ", and is answered with resets" if reset else ""
    said = f"Cut: {_flow(a, b, one_way)} gets through no more{with_resets}"
    _tell("cut", changed, said, "it is cut like that already", as_json)


def isolate(
    name: Annotated[str, typer.Argument(metavar="NODE|ZONE", help=WHERE)],
    reset: Reset = False,
    data_dir_option: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Cut a node, or all of a zone, from everybody else.

    Inside a zone all goes on. `holdfast status` still sees who is isolated: it has a way of its
    own, which nothing cuts.

    Examples: `holdfast isolate leader:payments-0`; `holdfast isolate a`.
    """
    cluster, (name,) = _opened(data_dir_option, name)
    changed = cluster.links().isolate(name, reset=reset)
    said = f"Isolated: {name} is cut from all others"
    _tell("isolate", changed, said, f"{name} is isolated already", as_json)


def heal(
    a: Annotated[str | None, typer.Argument(metavar="A", help=WHERE)] = None,
    b: Annotated[str | None, typer.Argument(metavar="B", help="The same.")] = None,
    data_dir_option: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Make links whole: all there are, all of A, or those between A and B.

    Nothing is cut, slow or lossy there any more. TCP may take some time to notice.

    Examples: `holdfast heal`; `holdfast heal 0`; `holdfast heal 0 1`.
    """
    cluster = LocalCluster.open(data_dir(data_dir_option))
    if a is not None:
        a = place_named(cluster, a)
    if b is not None:
        b = place_named(cluster, b)
    changed = cluster.links().heal(a, b)
    whole = "all links are whole"
    if a is not None:
        whole = f"all links of {a} are whole" if b is None else f"{a} and {b} reach each other"
    _tell("heal", changed, f"Healed: {whole}", whole, as_json)


def slow(
    a: A,
    b: B,
    latency: Annotated[
        str | None, typer.Option("--latency", metavar="200ms", help="How long packets take.")
    ] = None,
    jitter: Annotated[
        str | None,
        typer.Option(
            "--jitter",
            metavar="50ms",
            help="Give or take so much; it changes slowly, so that packets keep their order.",
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option("--rate", metavar="1MB/s", help="How much gets through; also 500kbit/s."),
    ] = None,
    reorder: Annotated[
        str | None,
        typer.Option(
            "--reorder", metavar="5%", help="Packets that don't wait and overtake others."
        ),
    ] = None,
    one_way: OneWay = False,
    data_dir_option: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Slow what passes between A and B: --latency, --rate or both.

    Each direction has all of it: there and back takes twice the latency. A second `slow` replaces
    the first.

    Examples: `holdfast slow 0 1 --latency 200ms --jitter 50ms`; `holdfast slow host brokers --rate
    1MB/s`.
    """
    cluster, (a, b) = _opened(data_dir_option, a, b)
    links = cluster.links()
    changed = links.slow(
        a, b, latency=latency, jitter=jitter, rate=rate, reorder=reorder, one_way=one_way
    )
    words = [
        latency and f"takes {latency}",
        jitter and f"give or take {jitter}",
        rate and f"is at most {rate}",
        reorder and f"{reorder} of it overtakes",
    ]
    how = ", ".join(word for word in words if word)
    said = f"Slowed: {_flow(a, b, one_way)} {how}{_with_resets(links)}"
    _tell("slow", changed, said, "it is slowed like that already", as_json, links.reset)


def lose(
    a: A,
    b: B,
    share: Annotated[
        str, typer.Argument(metavar="SHARE", help="How many of the packets, such as 5%.")
    ],
    one_way: OneWay = False,
    data_dir_option: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Lose a share of the packets between A and B, each by chance.

    Examples: `holdfast lose 0 1 5%`; `holdfast lose brokers brokers 1%`; 0% ends it.
    """
    cluster, (a, b) = _opened(data_dir_option, a, b)
    links = cluster.links()
    changed = links.lose(a, b, share, one_way=one_way)
    said = f"Lossy: of {_flow(a, b, one_way)} {share} of packets vanish{_with_resets(links)}"
    _tell("lose", changed, said, "it loses as many already", as_json, links.reset)


def drop_responses(
    client: Annotated[str, typer.Argument(metavar="CLIENT", help=WHERE)],
    node: Annotated[str, typer.Argument(metavar="NODE", help="Whose answers get lost.")],
    api: Annotated[
        str, typer.Option("--api", metavar="NAME", help="Answers to which request: Produce, Fetch.")
    ],
    count: Annotated[int, typer.Option("--count", metavar="N", help="How many of them.")] = 1,
    close: Annotated[
        bool,
        typer.Option("--close", help="Close the connection then; without it it stays, silent."),
    ] = False,
    data_dir_option: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Swallow a node's next answers to a client: what was asked is done, and nobody learns it.

    Connections that there are between the two are reset first.

    Example: `holdfast drop-responses host 1 --api Produce --count 3`.
    """
    cluster, (client, node) = _opened(data_dir_option, client, node)
    changed = cluster.links().drop_responses(client, node, api, count=count, close=close)
    answers = f"the next answer to {api}" if count == 1 else f"the next {count} answers to {api}"
    then = "the connection is closed then" if close else "the connection stays, silent"
    resets = "connections that there were between them have been reset"
    said = f"Swallowed: {answers} from {node} to {client}; {then}; {resets}"
    _tell("drop-responses", changed, said, "", as_json)


def _opened(directory: Path | None, *names: str) -> tuple[LocalCluster, list[str]]:
    """Open the cluster, and return it with these names as its network knows them."""
    cluster = LocalCluster.open(data_dir(directory))
    cluster.network()  # which says so if there is none, before anybody is asked who leads
    return cluster, [place_named(cluster, name) for name in names]


def _flow(a: str, b: str, one_way: bool) -> str:
    if one_way:
        return f"what {a} sends to {b}"
    return f"what passes between {a}" if a == b else f"what passes between {a} and {b}"


def _with_resets(links: Links) -> str:
    """Say whose connections could not stay as they were with what was changed."""
    if not links.reset:
        return ""
    pairs = ", ".join(f"{client} to {node}" for client, node in links.reset)
    return f"; connections that `drop-responses` had left in its relay were reset: {pairs}"


def _tell(
    command: str,
    changed: Change,
    said: str,
    already: str,
    as_json: bool,
    reset: Change | None = None,
) -> None:
    """Print what was changed; if nothing was, that it was so before.

    `reset`: whose connections ended by it, in JSON as well if there were any.
    """
    if as_json:
        values = {"changed": changed, **({"reset": reset} if reset else {})}
        listed = {
            key: [{"from": source, "to": target} for source, target in pairs]
            for key, pairs in values.items()
        }
        print(json.dumps({"command": command, **listed}, indent=2))
    elif changed:
        print(f"{said} ({len(changed)} link{'' if len(changed) == 1 else 's'}).")
    else:
        print(f"Nothing changed: {already}.")
