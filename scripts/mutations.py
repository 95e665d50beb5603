"""All bugs to put in on purpose."""

from __future__ import annotations

from mutations_nodes import NODES
from mutations_processes import PROCESSES

MUTATIONS = (*NODES, *PROCESSES)
