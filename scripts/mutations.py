"""All bugs to put in on purpose."""

from __future__ import annotations

from mutations_following import FOLLOWING
from mutations_nodes import NODES
from mutations_pipelines import PIPELINES
from mutations_processes import PROCESSES

MUTATIONS = (*NODES, *FOLLOWING, *PIPELINES, *PROCESSES)
