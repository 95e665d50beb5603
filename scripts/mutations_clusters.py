"""Bugs in what a Spark cluster's processes send each other, and in likeness to Spark's connector.

Each names the tests that find it.
"""

from __future__ import annotations

from mutation import Mutation, one

SAME_VERSION_TESTS = ("tests/pipelines/test_pipeline_same_version.py",)
_TAKEN = "self.__dict__.update(unstamped(state))"

CLUSTERS: tuple[Mutation, ...] = (
    one(
        "clusters: what another version has pickled is taken",
        "a client or an executor that was not upgraded",
        "pipelines/intake/same_version.py",
        "    if sent != __version__:\n",
        "    if sent is None:\n",
        tests=SAME_VERSION_TESTS,
    ),
    one(
        "clusters: an executor takes ranges from any version",
        "the same",
        "pipelines/planner.py",
        _TAKEN,
        "self.__dict__.update(state)",
        tests=SAME_VERSION_TESTS,
    ),
    one(
        "clusters: Connect's server takes sinks from any version",
        "the same",
        "pipelines/sinks/table_sink.py",
        _TAKEN,
        "self.__dict__.update(state)",
        tests=SAME_VERSION_TESTS,
    ),
    one(
        "clusters: SQLite is written wherever the query runs",
        "a driver that starts elsewhere begins another file",
        "pipelines/sinks/sql_store.py",
        "if not is_one_machine(master):",
        'if master == "yarn":',
        tests=("tests/pipelines/test_pipeline_sqlite_place.py",),
    ),
    one(
        "clusters: a pattern has to match a topic's whole name",
        "a query that moves here from Spark's own connector reads nothing",
        "pipelines/intake/topic_pattern.py",
        "compiled.search(name)",
        "compiled.fullmatch(name)",
        tests=("tests/pipelines/test_pipeline_topic_pattern.py",),
    ),
    one(
        "clusters: a small fetch is refused",
        "librdkafka's rule about a producer's messages",
        "pipelines/intake/connection.py",
        "**_small_fetches(client), ",
        "",
        tests=("tests/pipelines/test_pipeline_connection.py",),
    ),
)
