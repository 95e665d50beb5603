"""`holdfast status --links`: what is wrong with which link, and what was dropped there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from holdfast.cli.exit_status import EXIT_FAILED
from holdfast.cluster import LocalCluster, plan
from holdfast.cluster.network.links.link_requests import is_whole

Link = Mapping[str, Any]  # as `link_requests.status` has it


def show_links(cluster: LocalCluster, *, as_json: bool) -> None:
    """Print the links with which something is or was wrong. Exit status 1: something is.

    ClusterError: the agent does not answer.
    """
    from holdfast.cluster.network.links.link_calls import LOOK_S  # noqa: PLC0415 - as in `status`

    seen = cluster.links().within(LOOK_S).status()
    broken = [link for link in seen["links"] if not is_whole(link)]
    if as_json:
        print(json.dumps({"whole": not broken, **seen}, indent=2))
    else:
        if cluster.record.network == plan.PROXIES:
            from holdfast.cluster.network.possible import WITH_PROXIES  # noqa: PLC0415

            print(f"{WITH_PROXIES}\n")
        for line in lines(seen):
            print(line)
    if broken or not seen["agrees"]:
        raise typer.Exit(EXIT_FAILED)


def lines(seen: Mapping[str, Any]) -> list[str]:
    """Return the table. Two directions with the same trouble are one row."""
    rows = _rows(seen["links"])
    text = []
    if rows:
        titles = ("LINK", "STATE", "DROPPED")
        widths = [max(len(row[at]) for row in [titles, *rows]) for at in range(2)]
        text = [
            f"{link:<{widths[0]}}  {state:<{widths[1]}}  {dropped}".rstrip()
            for link, state, dropped in [titles, *rows]
        ]
        text.append("")
    broken = sum(not is_whole(link) for link in seen["links"])
    one = "1 link is broken" if broken == 1 else f"{broken} links are broken"
    text.append(f"{one}; all others are whole." if broken else "All links are whole.")
    if seen["found_no_room"]:
        text.append(f"{seen['found_no_room']} packets found no room on slowed links.")
    if not seen["agrees"]:
        text.append(
            "The rules in force are not those that were asked for, somebody else has changed them: "
            "`holdfast heal` makes all links whole."
        )
    return text


def _rows(links: Sequence[Link]) -> list[tuple[str, str, str]]:
    left = {(link["from"], link["to"]): link for link in links}
    rows = []
    while left:
        (source, target), link = next(iter(left.items()))
        del left[source, target]
        ways = [link]
        back = left.get((target, source))
        if back is not None and troubles(back) == troubles(link):
            ways.append(left.pop((target, source)))
        arrow = "->" if len(ways) == 1 else "<->"
        counts = [_dropped(way) for way in ways]
        dropped = " / ".join(map(str, counts)) if any(counts) else ""
        first, *others = troubles(link)
        rows.append((f"{source} {arrow} {target}", first, dropped))
        rows += [("", other, "") for other in others]
    return rows


def _dropped(link: Link) -> int:
    return int(link["dropped"]["cut"] + link["dropped"]["lost"])


def troubles(link: Link) -> list[str]:
    """Return what is wrong with one link, each in a few words; that nothing is."""
    words = []
    if link["cut"]:
        words.append("cut" if link["cut"] == "drop" else "cut, with resets")
    if link["lose"]:
        words.append(f"loses {link['lose'] * 100:g}%")
    if link["slow"]:
        words.append(_slow(link["slow"]))
    if link["answers"]:
        what = link["answers"]
        then = "then closed" if what["close"] else "then silent"
        words.append(f"swallowed {what['swallowed']} of {what['count']} {what['api']}, {then}")
    return words or ["whole again"]


def _slow(how: Mapping[str, Any]) -> str:
    words = []
    if how["latency_s"]:
        words.append(_time(how["latency_s"]))
    if how["jitter_s"]:
        words.append(f"+-{_time(how['jitter_s'])}")
    if how["bytes_per_s"]:
        words.append(_rate(how["bytes_per_s"]))
    if how["reorder"]:
        words.append(f"{how['reorder'] * 100:g}% overtake")
    return f"slow {' '.join(words)}"


def _time(seconds: float) -> str:
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"


def _rate(rate: int) -> str:
    for size, unit in ((10**9, "GB/s"), (10**6, "MB/s"), (10**3, "kB/s")):
        if rate >= size:
            return f"{rate / size:g}{unit}"
    return f"{rate}B/s"
