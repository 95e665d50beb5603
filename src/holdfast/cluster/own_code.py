"""Where processes of our own find this very code, and not whatever is installed.

A proof is of the code that its lab is of only where nodes and the network run the same. Node
processes begin with `-P`, so nothing but the environment tells them of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import holdfast

VARIABLE: Final = "PYTHONPATH"
SOURCE: Final = str(Path(holdfast.__file__).parent.parent)


def environment(over: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what is laid over our own environment for a process that is to run this code.

    What `over` names there stands first: who names other code for a process means it.
    """
    given = dict(over or {})
    places = [given.get(VARIABLE), SOURCE, os.environ.get(VARIABLE)]
    return {**given, VARIABLE: os.pathsep.join(filter(None, places))}
