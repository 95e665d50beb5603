"""Bugs in how much the active controller does for one request.

Owns the list for the tests that each names. Nearly all answers are the same: a client could hold
the controller, and with it the cluster, by a request of a few kilobytes.
"""

from __future__ import annotations

from mutation import Mutation, one

TOPICS = "core/controller/topic_changes.py"
CONFIGS = "core/controller/config_changes.py"
ELECTIONS = "core/controller/elections.py"
SHOWN = "core/controller/shown_settings.py"
FEATURES = "core/controller/feature_updates.py"
REGISTRY = "config/registry.py"

TEST_TOPICS = "tests/core/test_control_topics.py"
TEST_CONFIGS = "tests/core/test_control_configs.py"
TEST_FEATURES = "tests/core/test_control_features.py"
TEST_MOVES = "tests/core/test_control_moves.py"
TEST_HOSTILE = "tests/wire/test_hostile.py"
TEST_KEYS = "tests/config/test_config_keys.py"

BOUNDLESS = "17 KB that named 1,200 topics of 9,999 partitions"
SQUARE = "476 KB that named 60,000 topics"


CONTROL: tuple[Mutation, ...] = (
    # -- what may not be made is not worked out -----------------------------------------------
    one(
        "a topic is placed before it is known whether the request may make it",
        BOUNDLESS,
        TOPICS,
        "    if factor <= len(state.image.brokers) and not room.holds_topic(asked, partitions):\n"
        "        return _too_many_records()\n"
        "    return placed(state, partitions, factor, seed)\n",
        "    lists = placed(state, partitions, factor, seed)\n"
        "    if not room.holds_topic(asked, partitions):\n"
        "        return _too_many_records()\n"
        "    return lists\n",
        tests=(f"{TEST_TOPICS}::test_what_is_refused_is_not_worked_out",),
    ),
    one(
        "lists by hand are looked at before it is known whether the request may make them",
        BOUNDLESS,
        TOPICS,
        "        if not room.holds_topic(asked, len(asked.assignments)):\n"
        "            return _too_many_records()\n"
        "        return by_hand(state, asked.assignments)\n",
        "        lists = by_hand(state, asked.assignments)\n"
        "        if not room.holds_topic(asked, len(asked.assignments)):\n"
        "            return _too_many_records()\n"
        "        return lists\n",
        tests=(f"{TEST_TOPICS}::test_what_is_refused_is_not_worked_out",),
    ),
    one(
        "a topic that nobody can lead gives back what working it out took",
        BOUNDLESS,
        TOPICS,
        "        if record is None:\n"
        "            return nobody_to_lead(index, replicas)\n"
        "        records.append(record)\n"
        "    return records\n\n\n"
        "def _check_configs",
        "        if record is None:\n"
        "            room.left = RECORDS_PER_REQUEST_MAX\n"
        "            return nobody_to_lead(index, replicas)\n"
        "        records.append(record)\n"
        "    return records\n\n\n"
        "def _check_configs",
        tests=(f"{TEST_TOPICS}::test_what_is_refused_is_not_worked_out",),
    ),
    one(
        "each topic that is to grow may grow by all that a request may make",
        BOUNDLESS,
        TOPICS,
        "            outcome = _add_partitions(state, asked, seed, room)\n",
        "            outcome = _add_partitions(state, asked, seed, _Room())\n",
        tests=(f"{TEST_TOPICS}::test_partitions_that_are_refused_are_not_worked_out",),
    ),
    one(
        "settings that topics have in common are described for each of them",
        "5,000 topics in one request",
        SHOWN,
        "        if not self._common:\n",
        "        if asked is not None:\n",
        tests=(f"{TEST_TOPICS}::test_settings_that_topics_have_in_common_are_described_once",),
    ),
    one(
        "a factor that no broker is there for takes room of the request's other topics",
        "CreateTopics of one large and one small topic",
        TOPICS,
        "    if factor <= len(state.image.brokers) and not room.holds_topic(",
        "    if not room.holds_topic(",
        tests=(f"{TEST_TOPICS}::test_who_is_refused_at_once_leaves_the_others_their_room",),
    ),
    one(
        "a setting may have any length",
        "four APPENDs of 4 MB",
        REGISTRY,
        "    return value is not None and len(value.encode()) > VALUE_BYTES_MAX\n",
        "    return value is not None and not value.isprintable()\n",
        tests=(f"{TEST_CONFIGS}::test_a_value_is_no_longer_than_older_requests_can_carry",),
    ),
    one(
        "all settings of a topic are described to find one default",
        "APPEND to lists of 5,000 topics",
        CONFIGS,
        "described(state, {}, names=(name,))",
        "[each for each in described(state, {}) if each.name == name]",
        tests=(f"{TEST_CONFIGS}::test_a_default_is_looked_up_alone",),
    ),
    one(
        "each replica is looked for in the whole list of throttled ones",
        "10,000 of 10,000 partitions in a list",
        "config/topic.py",
        "    return dict.fromkeys(sorted(value))\n",
        "    return tuple(sorted(value))\n",
        tests=(
            "tests/replication/test_sim_throttle.py::test_no_replica_is_held_against_the_whole_list",
        ),
    ),
    # -- nothing is held against all the others ---------------------------------------------------
    one(
        "each topic that is to be made is counted among all",
        SQUARE,
        TOPICS,
        '            outcome = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")\n'
        "        else:\n"
        "            outcome = _create_one(",
        '            outcome = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")\n'
        "        elif [each.name for each in request.topics].count(asked.name):\n"
        "            outcome = _create_one(",
        tests=(f"{TEST_TOPICS}::test_no_topic_of_a_request_is_held_against_every_other",),
    ),
    one(
        "each topic that is to grow is counted among all",
        SQUARE,
        TOPICS,
        '            outcome = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")\n'
        "        else:\n"
        "            outcome = _add_partitions(",
        '            outcome = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")\n'
        "        elif [each.name for each in request.topics].count(asked.name):\n"
        "            outcome = _add_partitions(",
        tests=(f"{TEST_TOPICS}::test_no_topic_that_is_to_grow_is_held_against_every_other",),
    ),
    one(
        "each resource whose configuration changes is counted among all",
        SQUARE,
        CONFIGS,
        "        outcome = _refuse_resource(state, resource, counts, refusals)\n",
        "        counts[resource] = resources.count(resource)\n"
        "        outcome = _refuse_resource(state, resource, counts, refusals)\n",
        tests=(f"{TEST_CONFIGS}::test_each_resource_is_not_held_against_every_other",),
    ),
    one(
        "an unclean election of some topics looks at the partitions of all",
        "elections.md#unclean-election",
        ELECTIONS,
        "else (each for name in topics for each in image.topics[name].partitions)\n",
        "else (e for name in topics for e in image.partitions() if e.topic == name)\n",
        tests=(
            f"{TEST_CONFIGS}::test_unclean_election_looks_at_the_partitions_of_its_topics_alone",
        ),
    ),
    one(
        "what is appended to a list is looked for in the whole list",
        "APPEND",
        REGISTRY,
        "    present = set(members)\n",
        "    present = members\n",
        tests=(f"{TEST_KEYS}::test_no_member_is_held_against_every_other",),
    ),
    one(
        "what is in a list is looked for in all that is subtracted",
        "SUBTRACT",
        REGISTRY,
        "    removed = set(_members(removal))\n",
        "    removed = _members(removal)\n",
        tests=(f"{TEST_KEYS}::test_no_member_is_held_against_every_other",),
    ),
    # -- names that clients choose --------------------------------------------------------------
    one(
        "the name of a broker is a number, however long",
        "int() of 5,000 digits",
        CONFIGS,
        "    if not _BROKER_ID.fullmatch(name):\n",
        "    if not (name.isascii() and name.isdigit() and str(int(name)) == name):\n",
        tests=(f"{TEST_CONFIGS}::test_a_name_of_thousands_of_digits_is_no_broker",),
    ),
    one(
        "a request's string may have any length",
        "names of 100 MB",
        "wire/decoder.py",
        '                if code == "h" and self.is_counted:\n',
        '                if code == "never" and self.is_counted:\n',
        tests=(f"{TEST_HOSTILE}::test_a_string_is_no_longer_than_older_versions_can_say",),
    ),
    one(
        "every partition that is to move is told the whole name of a topic",
        "190 KB that were answered with 384 MB",
        "core/controller/reassignment.py",
        "a topic named {shown(topic)}.",
        "a topic named {topic}.",
        tests=(f"{TEST_MOVES}::test_a_long_name_is_not_told_of_every_partition",),
    ),
    one(
        "every partition that is to be elected for is told the whole name of a topic",
        "120 KB that were answered with 479 MB",
        "core/controller/asked_elections.py",
        "{shown(asked.topic)}",
        "{asked.topic}",
        tests=(f"{TEST_MOVES}::test_a_long_name_is_not_told_of_every_partition_to_elect_for",),
    ),
    one(
        "every feature is told the whole name of one that is unknown",
        "UpdateFeatures, version 1",
        FEATURES,
        "feature {shown(name)}. {why}",
        "feature {name}. {why}",
        tests=(f"{TEST_FEATURES}::test_a_long_name_is_not_told_of_every_feature",),
    ),
    one(
        "every feature is told the whole name of one that comes twice",
        "UpdateFeatures, version 1",
        FEATURES,
        'f"{shown(update.feature)} is named twice."',
        'f"{update.feature} is named twice."',
        tests=(f"{TEST_FEATURES}::test_a_long_name_is_not_told_of_every_feature",),
    ),
)
