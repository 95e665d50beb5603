"""Write the generated pages of docs/reference (`make docs`)."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from holdfast.config.documentation import document
from holdfast.config.figures import FIGURES, short_name
from holdfast.config.group_keys import GROUP_SYNONYMS
from holdfast.config.key import INT_MAX, LONG_MAX, Key, Update
from holdfast.config.registry import GROUP, NODE, TOPIC
from holdfast.config.retired import RETIRED_NODE_KEYS, RETIRED_TOPIC_KEYS
from holdfast.config.topic_keys import SYNONYMS
from holdfast.node.door.api_table import APIS, ON_BROKER, ON_CONTROLLER, Api, Role
from holdfast.wire.messages import api_name

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"

_UPDATES = {
    Update.READ_ONLY: "at start",
    Update.PER_BROKER: "any time, per broker",
    Update.CLUSTER_WIDE: "any time",
}


def pages() -> dict[str, str]:
    """Return the text of each page by its name."""
    return {"configuration.md": configuration(), "protocol.md": protocol()}


def protocol() -> str:
    """Return the page of the APIs that are served."""
    lines = [
        "# Protocol",
        "",
        "Written by `make docs` from the table in `src/holdfast/node/door`; don't edit it.",
        "A node advertises what stands here. It speaks Kafka's wire protocol; the versions are",
        "Kafka's. A forwarded request travels from the broker to the controller in an Envelope.",
        "Produce is advertised from 0, as Apache Kafka does, for old clients that look at it;",
        "batches of format 2 alone are taken, so 3 is the lowest version that is served.",
        "",
        "The fifth column is what an authorizer is asked; a principal that may not is refused.",
        "",
        "| key | API | brokers, for clients | controller | takes | |",
        "|--|--|--|--|--|--|",
    ]
    for api in APIS:
        note = "forwarded" if Role.FORWARDING in api.role else ""
        if api.module == "fetch_metadata_log":
            note = "the metadata log, for brokers"
        served = f"{api.versions[0]} to {api.versions[1]}"
        sides = [served if api.role & side else "" for side in (ON_BROKER, ON_CONTROLLER)]
        lines.append(_row(str(api.key), api_name(api.key), *sides, _need(api), note))
    return "\n".join(lines) + "\n"


def _need(api: Api) -> str:
    if api.need is None:
        return "nothing"
    operation, kind = (each.name.replace("_", " ").capitalize() for each in api.need)
    return f"{operation} on {kind.lower()}"


def configuration() -> str:
    """Return the page of all keys."""
    lines = [
        "# Configuration",
        "",
        "Written by `make docs` from the registry in `src/holdfast/config`; don't edit it.",
        "Names, types and defaults are Apache Kafka's. A key that is not listed is a warning at",
        "start. A value that can't be honoured is an error that names the key.",
        "",
        "## Topics",
        "Set with `holdfast topics --create --config` or `holdfast configs --alter`. A topic's own",
        "value is strongest; then the broker's dynamic value, the cluster's dynamic value, the",
        "properties file, the default.",
        "",
        "| key | type | default | allowed | broker key | meaning |",
        "|--|--|--|--|--|--|",
        *(_topic_row(key) for key in TOPIC.values()),
        "",
        "## Nodes",
        "Set in the properties file, or at run time where the fourth column says so.",
        "",
        "| key | type | default | changes | allowed | meaning |",
        "|--|--|--|--|--|--|",
        *(_node_row(key) for key in sorted(NODE.values(), key=lambda key: key.name)),
        "",
        "## Groups",
        "Set with `holdfast configs --alter --entity-type groups`, also before there is a group of",
        "that name. A group's own value is strongest; then the broker's for all groups. It is held",
        "to the broker's bounds when it is set, and drawn into them where they have changed since.",
        "",
        "| key | type | default | allowed | broker key | meaning |",
        "|--|--|--|--|--|--|",
        *(_group_row(key) for key in GROUP.values()),
        "",
        "## Figures",
        "What a node tells of itself: brokers and controllers answer DescribeConfigs for these,",
        "by name, and `holdfast status --json` shows them under the name in the second column.",
        "",
        "| name | in `status --json` | meaning |",
        "|--|--|--|",
        *(_row(f"`{name}`", f"`{short_name(name)}`", FIGURES[name]) for name in FIGURES),
        "",
        "## Keys of former versions of Apache Kafka",
        "These, and all `zookeeper.*`, are errors that say what to do instead.",
        "",
        "| key | what to do |",
        "|--|--|",
        *_retired_rows((RETIRED_NODE_KEYS | RETIRED_TOPIC_KEYS).items()),
    ]
    return "\n".join(lines) + "\n"


def _topic_row(key: Key) -> str:
    synonyms = ", ".join(f"`{name}`" for name, _ in SYNONYMS.get(key.name, ()))
    return _row(f"`{key.name}`", _type(key), _default(key), _allowed(key), synonyms, _meaning(key))


def _group_row(key: Key) -> str:
    synonym = GROUP_SYNONYMS.get(key.name)
    shown = "" if synonym is None else f"`{synonym}`"
    return _row(f"`{key.name}`", _type(key), _default(key), _allowed(key), shown, _meaning(key))


def _node_row(key: Key) -> str:
    changes = _UPDATES[key.update]
    return _row(f"`{key.name}`", _type(key), _default(key), changes, _allowed(key), _meaning(key))


def _retired_rows(items: Iterable[tuple[str, str]]) -> list[str]:
    return [_row(f"`{name}`", advice) for name, advice in sorted(items)]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _type(key: Key) -> str:
    return key.type.name.lower()


def _default(key: Key) -> str:
    if key.default is None:
        return "none"
    return f"`{key.default}`" if key.default else "empty"


def _allowed(key: Key) -> str:
    if key.honoured:
        values = " or ".join(f"`{value}`" if value else "empty" for value in key.honoured)
        return f"{values} only: {key.reason}"
    if key.choices:
        return ", ".join(f"`{choice}`" for choice in key.choices)
    if key.members is not None:
        return key.members[1]
    if key.low is not None and key.high is not None:
        return f"{key.low} to {key.high}"
    return f"at least {key.low}" if key.low is not None else ""


def _meaning(key: Key) -> str:
    note = "" if key.effect else " *Read, without effect yet.*"
    text = document(key.name)
    for largest in (INT_MAX, LONG_MAX):
        if key.default == str(largest):
            note = f" (the default means: no limit){note}"
    return text + note


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"wrote docs/reference/{name}\n")
