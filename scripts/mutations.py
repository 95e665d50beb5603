"""All bugs to put in on purpose."""

from __future__ import annotations

from mutations_answers import ANSWERS
from mutations_bounds import BOUNDS
from mutations_clusters import CLUSTERS
from mutations_columns import COLUMNS
from mutations_compaction import COMPACTION
from mutations_control import CONTROL
from mutations_elsewhere import ELSEWHERE
from mutations_following import FOLLOWING
from mutations_group_members import GROUP_MEMBERS
from mutations_group_room import GROUP_ROOM
from mutations_group_settings import GROUP_SETTINGS
from mutations_groups import GROUPS
from mutations_growth import GROWTH
from mutations_iceberg import ICEBERG
from mutations_lag import LAG
from mutations_members import MEMBERS
from mutations_network import NETWORK
from mutations_nodes import NODES
from mutations_pipelines import PIPELINES
from mutations_places import PLACES
from mutations_prices import PRICES
from mutations_processes import PROCESSES
from mutations_reading import READING
from mutations_redis import REDIS
from mutations_rim import RIM
from mutations_rim_logs import RIM_LOGS
from mutations_sessions import SESSIONS
from mutations_splits import SPLITS
from mutations_sql_races import SQL_RACES
from mutations_tables import TABLES
from mutations_tools import TOOLS
from mutations_waits import WAITS

MUTATIONS = (
    *NODES,
    *FOLLOWING,
    *GROWTH,
    *GROUPS,
    *MEMBERS,
    *RIM,
    *RIM_LOGS,
    *SESSIONS,
    *SPLITS,
    *TOOLS,
    *BOUNDS,
    *PLACES,
    *NETWORK,
    *ANSWERS,
    *CLUSTERS,
    *COLUMNS,
    *COMPACTION,
    *CONTROL,
    *ELSEWHERE,
    *GROUP_MEMBERS,
    *GROUP_ROOM,
    *GROUP_SETTINGS,
    *WAITS,
    *PIPELINES,
    *TABLES,
    *SQL_RACES,
    *READING,
    *ICEBERG,
    *REDIS,
    *LAG,
    *PROCESSES,
    *PRICES,
)
