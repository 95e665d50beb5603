"""Where processes of our own find this very code, and not whatever is installed.

A proof is of the code that its lab is of only where nodes and the network run the same. Node
processes begin with `-P`, so nothing but the environment tells them of it. Of a package that is
installed they know by themselves, and then nothing is named: its folder would come before the
standard library's, with all that others have installed there.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import holdfast

VARIABLE: Final = "PYTHONPATH"
NO_USER_SITE: Final = "PYTHONNOUSERSITE"
SOURCE: Final = str(Path(holdfast.__file__).parent.parent)


def environment(over: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what is laid over our own environment for a process that is to run this code.

    What `over` names there stands first: who names other code for a process means it. What we
    have passed over ourselves (Python's -E, -s and -I) is passed over by that process, too.
    """
    given = dict(over or {})
    if sys.flags.no_user_site:
        given[NO_USER_SITE] = "1"
    ours = os.environ.get(VARIABLE, "")
    inherited = "" if sys.flags.ignore_environment else ours
    named = "" if _is_found(inherited) else SOURCE
    path = os.pathsep.join(filter(None, [given.get(VARIABLE), named, inherited]))
    return given if path == ours else {**given, VARIABLE: path}


def _is_found(inherited: str) -> bool:
    """Whether a process that inherits this finds our code, and before any other of that name."""
    places = [*filter(None, inherited.split(os.pathsep)), *_installed()]
    for place in places:
        with suppress(OSError):  # a folder that may not be read is passed over, as Python does
            if Path(place, "holdfast", "__init__.py").is_file():
                return Path(place).samefile(SOURCE)
    return False


def _installed() -> list[str]:
    """Return the folders of what is installed, in the order in which Python looks there."""
    of_the_user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return [*of_the_user, *site.getsitepackages()]
