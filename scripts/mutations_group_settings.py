"""Bugs in what groups are configured with: keys, bounds, who may have what, and what is served.

Owns the list for the tests that each names.
"""

from __future__ import annotations

from mutation import Mutation, one

RULES = "config/group_rules.py"
DESCRIBE = "config/describe.py"
CONFIGS = "core/controller/config_changes.py"
OVERRIDES = "core/group/consumer/consumer_settings.py"
FEATURES = "core/metadata/feature_levels.py"
SETTINGS = "node/coordinator/coordinator_settings.py"
CONTEXT = "node/door/request_context.py"

TEST_KEYS = "tests/config/test_config_groups.py"
TEST_CONFIGS = "tests/core/test_control_configs.py"
TEST_FEATURES = "tests/core/test_control_features.py"
TEST_SETTINGS = "tests/node/test_coordinator_settings.py"
TEST_DENIED = "tests/node/test_denied.py"
TEST_SHARD = "tests/group/test_consumer_shard.py"

HELD = "a group is held to the brokers' bounds"
OWN = "a group's own settings are found where they are used"

GROUP_SETTINGS: tuple[Mutation, ...] = (
    one(
        "a session as long as the interval of heartbeats is let through",
        HELD,
        RULES,
        "return less > more or (self.strict and less == more)",
        "return less > more",
        tests=(f"{TEST_KEYS}::test_a_session_is_longer_than_a_heartbeat_s_interval",),
    ),
    one(
        "bounds are those of the defaults, whatever the file says",
        HELD,
        RULES,
        "    text = static.get(name, _KEYS[name].default)\n",
        "    text = _KEYS[name].default\n",
        tests=(f"{TEST_CONFIGS}::test_a_group_is_held_to_the_bounds_in_the_controllers_file",),
    ),
    one(
        "what a group has already is not looked at with what changes",
        HELD,
        CONFIGS,
        "    together = _wrong_together(state, resource, present, after)\n",
        "    named = {step.name for step in steps}\n"
        "    changed = {name: value for name, value in after.items() if name in named}\n"
        "    together = _wrong_together(state, resource, present, changed)\n",
        tests=(f"{TEST_CONFIGS}::test_a_group_is_held_to_the_bounds_in_the_controllers_file",),
    ),
    one(
        "a group's setting that can't be read ends the controller's decision",
        HELD,
        RULES,
        "    except ConfigError as error:  # of what another controller than ours has let through\n"
        "        return str(error)\n",
        "    except KeyError as error:\n        return str(error)\n",
        tests=(
            f"{TEST_KEYS}::test_what_another_controller_let_through_is_refused_until_it_is_gone",
        ),
    ),
    one(
        "the default of all groups may leave its bounds at run time",
        HELD,
        CONFIGS,
        "    wrong = wrong or refuse_node_interval(name, value, state.settings.properties)\n",
        "",
        tests=(f"{TEST_CONFIGS}::test_refused_changes",),
    ),
    one(
        "a list's operation is let through for a group, by the name of a topic's key",
        HELD,
        CONFIGS,
        "if resource[0] == ResourceType.GROUP or not is_list(step.name):",
        "if not is_list(step.name):",
        tests=(f"{TEST_CONFIGS}::test_refused_changes",),
    ),
    one(
        "a group's assignment interval is not drawn into the broker's bounds",
        HELD,
        OVERRIDES,
        'changes["assignment_interval_ms"] = _within(assignment_ms, *bounds)',
        'changes["assignment_interval_ms"] = assignment_ms',
        tests=(f"{TEST_SHARD}::test_settings_of_a_group_are_drawn_into_the_broker_s_bounds",),
    ),
    one(
        "a group whose last setting is taken back keeps it",
        OWN,
        SETTINGS,
        "            overrides.pop(name, None)\n",
        "            pass\n",
        tests=(f"{TEST_SETTINGS}::test_overrides_follow_the_image",),
    ),
    one(
        "a group is told of another kind's resource of its name",
        OWN,
        SETTINGS,
        "        if kind == ResourceType.GROUP\n",
        "        if kind\n",
        tests=(f"{TEST_SETTINGS}::test_overrides_follow_the_image",),
    ),
    one(
        "a group's own value is not described where brokers have a default for it",
        OWN,
        DESCRIBE,
        "        if name in group:\n",
        "        if name in group and synonym is None:\n",
        tests=(f"{TEST_KEYS}::test_a_group_is_described_with_its_sources",),
    ),
    one(
        "a group's settings are anybody's who may alter the cluster's",
        "a group's settings take a right over the group",
        CONTEXT,
        "    if kind == ConfigResourceType.GROUP:\n",
        "    if kind == ConfigResourceType.GROUP and not name:\n",
        tests=(f"{TEST_DENIED}::test_a_groups_settings_take_a_right_over_the_group",),
    ),
    one(
        "a cluster that says nothing of group.version serves the consumer protocol",
        "an older cluster serves it once it is asked to",
        FEATURES,
        "return features.get(GROUP_VERSION, 0) > 0",
        "return features.get(GROUP_VERSION, 1) > 0",
        tests=(
            f"{TEST_FEATURES}::test_a_new_cluster_serves_the_consumer_protocol_and_may_go_back",
            f"{TEST_SETTINGS}::test_the_consumer_protocol_is_the_cluster_s_and_the_node_s_to_allow",
        ),
    ),
    one(
        "a node whose file allows the classic protocol alone serves the other",
        "group.coordinator.rebalance.protocols counts",
        SETTINGS,
        "    return allowed and has_consumer_protocol(image.features)\n",
        "    return has_consumer_protocol(image.features)\n",
        tests=(
            f"{TEST_SETTINGS}::test_the_consumer_protocol_is_the_cluster_s_and_the_node_s_to_allow",
        ),
    ),
)
