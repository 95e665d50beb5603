"""Bugs in what starts, breaks and watches processes: clusters, scenarios, a run and its end.

The simulator runs none of it, so each names the tests that have to find it.
"""

from __future__ import annotations

from mutation import Mutation

PROCESSES: tuple[Mutation, ...] = ()
