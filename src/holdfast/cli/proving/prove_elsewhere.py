"""`holdfast prove` on a cluster that is there: --bootstrap-server, --nodes, and what they go with.

Nothing is done to that cluster here: all that can be refused is refused before the run begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final

from holdfast.lab.elsewhere.before import (
    look,
    look_with,
    parameters_for,
    refuse_unable,
    would_be_done,
)
from holdfast.lab.elsewhere.elsewhere_run import ElsewhereRun, held
from holdfast.lab.parameters import LabError, Parameters, refuse_if
from holdfast.lab.prove import Begin
from holdfast.lab.scenario import Scenario

Hold = Callable[[Callable[[str], None]], AbstractContextManager[None]]
MAY_BREAK: Final = "--i-may-break-this-cluster"
# What a cluster is made with; one that is there was made by somebody else.
MADE_WITH: Final = ("engine", "elr", "controllers", "profile", "config")


def prepared(
    scenario: Scenario,
    flags: Mapping[str, Any],
    *,
    servers: str | None,
    nodes: Path | None,
    may_break: bool,
    control: bool,
) -> tuple[Parameters, Begin, Hold]:
    """Return a scenario's parameters there, what begins a run, and what holds it for this lab.

    LabError, ClusterError: it can't be run there, or may not be, and nothing was done.
    """
    refuse_if(
        servers is not None and nodes is not None,
        "--bootstrap-server and --nodes: the file names its own bootstrap-server; leave one out.",
    )
    refuse_if(
        may_break and nodes is None,
        f"{MAY_BREAK} goes with --nodes FILE.toml, which says how the cluster is broken.",
    )
    for name in MADE_WITH:
        refuse_if(
            name in flags,
            f"--{name}: a cluster that is there has its own settings; leave it out.",
        )
    elsewhere = look(servers or "") if nodes is None else look_with(nodes)
    parameters = parameters_for(scenario, flags, elsewhere)
    refuse_unable(scenario, parameters, elsewhere, control=control)
    if elsewhere.file is not None and not may_break:
        lines = would_be_done(scenario, parameters, elsewhere, elsewhere.file, control=control)
        raise LabError("\n".join([*lines, f"Nothing was done. If it may be: {MAY_BREAK}."]))
    hold: Hold = held_by_nobody
    if elsewhere.file is not None:  # who breaks nothing is in nobody's way
        hold = partial(held, elsewhere.found, parameters.replication_factor)
    return parameters, partial(ElsewhereRun, elsewhere.found, elsewhere.file), hold


def held_by_nobody(_say: Callable[[str], None]) -> AbstractContextManager[None]:
    return nullcontext()
