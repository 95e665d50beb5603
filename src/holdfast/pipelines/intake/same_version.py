"""What one process pickles for another says which version of this package it is.

A driver, its executors and a Connect server each import an installation of their own. Another
version's classes would take the state without a word, and do something else with it.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from typing import Any, Final

from holdfast import __version__

_KEY: Final = "holdfast version"


class VersionError(RuntimeError):
    """Two processes of one query have different versions of this package."""


def stamped(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state to be pickled, with this process's version."""
    return {**state, _KEY: __version__}


def unstamped(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state that was stamped. VersionError: by another version than this process's."""
    found = dict(state)
    sent = found.pop(_KEY, None)
    if sent != __version__:
        raise VersionError(
            f"holdfast {sent or 'of an unknown version'} sent this query, and {sys.executable} on "
            f"{socket.gethostname()} has {__version__}: install one version for client or driver, "
            "Connect's server and executors"
        )
    return found
