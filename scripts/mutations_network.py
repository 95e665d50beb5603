"""Bugs in a network that breaks: links that are not what was asked for, and what is left behind."""

from __future__ import annotations

from mutation import Mutation, one

ROOM = "cluster/network"
TABLE = f"{ROOM}/link_table.py"
RULES = f"{ROOM}/links/link_rules.py"
AGENT = f"{ROOM}/links/link_agent.py"
HOLDER = f"{ROOM}/holder.py"
TEST_TABLE = "tests/cluster/network/test_link_table.py"
TEST_GROUND = "tests/cluster/network/test_network_ground.py"
TEST_LINKS = "tests/cluster/network/test_network_links.py"
TEST_CUTS = "tests/cluster/network/test_network_cuts.py"
TEST_PROXIES = "tests/cluster/network/test_network_proxies.py"
TEST_DELAYS = "tests/cluster/network/test_delays.py"
TEST_ANSWERS = "tests/cluster/network/test_answers.py"
TEST_LOCAL = "tests/cluster/network/test_network_local_cluster.py"
TEST_PLACED = "tests/cluster/test_networked.py"

NETWORK: tuple[Mutation, ...] = (
    one(
        "whoever is isolated can still be seen by the observer",
        "the lab is cut from what it watches",
        TABLE,
        "        if place.name not in inside and place.kind is not Kind.OBSERVER\n",
        "        if place.name not in inside\n",
        tests=(f"{TEST_TABLE}::test_isolating_leaves_the_inside_and_the_observer",),
    ),
    one(
        "a cut one way is a cut one way",
        "nobody hears whom a one-way cut lets speak",
        TABLE,
        "dict.fromkeys([next(directions)] if one_way else directions)",
        "dict.fromkeys(directions)",
        tests=(f"{TEST_TABLE}::test_each_pair_is_by_itself",),
    ),
    one(
        "whoever ends one fault of links opens what no other one holds",
        "a node that is isolated all along is heard for a moment, or for good",
        "lab/steps/sides.py",
        "        self._held.remove(fault)\n",
        "        self._held.clear()\n",
        tests=("tests/lab/test_lab_held_links.py",),
    ),
    one(
        "what acknowledges is no first byte",
        "a link that carries nothing is told to carry on",
        f"{ROOM}/links/first_bytes.py",
        "ip length > {20 + 4 * words}",
        "ip length >= {20 + 4 * words}",
        tests=(f"{TEST_CUTS}::test_the_first_byte_after_a_heal_is_told_by_link",),
    ),
    one(
        "a link leads to the chain of what is wrong with it now",
        "a link that is only to lose some packets stays cut",
        RULES,
        '    return f"jump {_chain(link.lose)}" if link.lose else "continue"\n',
        '    return f"jump {_CUT}/{Cut.DROP}" if link.lose else "continue"\n',
        tests=(f"{TEST_TABLE}::test_a_transaction_has_what_differs_and_no_more",),
    ),
    one(
        "what a chain dropped is counted under its link's name",
        "packets vanish and nobody says how many",
        RULES,
        "{_CUT}/{Cut.DROP} {_COUNTED_CUT} drop\n",
        "{_CUT}/{Cut.DROP} drop\n",
        tests=(f"{TEST_CUTS}::test_what_a_cut_dropped_is_counted_and_stays",),
    ),
    one(
        "a request whose answer was lost is not done again",
        "a call that is repeated undoes what came between",
        AGENT,
        "        if name is not None and name in self._answers:\n",
        "        if name is not None and name in self._answers and not line:\n",
        tests=(f"{TEST_LINKS}::test_one_request_sent_twice_is_done_once",),
    ),
    one(
        "the holder removes its files as it ends",
        "a network that is gone looks as if it stood",
        HOLDER,
        "            _remove(name)\n            _remove(name + NEW)\n",
        "            _remove(name + NEW)\n",
        tests=(f"{TEST_GROUND}::test_what_is_settled_stays_until_it_is_ended",),
    ),
    one(
        "a holder whose maker has gone ends",
        "namespaces stay for ever",
        HOLDER,
        "        if not part:\n            return\n",
        "        if not part:\n            select.select([ending], [], [])\n            return\n",
        tests=(f"{TEST_GROUND}::test_killed_makers_leave_nothing",),
    ),
    one(
        "a pid that was given away is not entered",
        "a command runs in a stranger's network",
        f"{ROOM}/enter.py",
        "        if _identity(process) != identity:\n",
        "        if not _identity(process):\n",
        tests=(f"{TEST_GROUND}::test_a_holder_s_pid_given_away_is_not_entered",),
    ),
    one(
        "packets of one link keep their order",
        "jitter reorders what was not to be reordered",
        f"{ROOM}/delays.py",
        "leg_us = _LEG * most_us",
        "leg_us = most_us",
        tests=(f"{TEST_DELAYS}::test_latency_and_jitter_keep_the_order",),
    ),
    one(
        "jitter is give or take however close packets are",
        "a slowed link is slower than was asked for",
        f"{ROOM}/delays.py",
        "        return first_us + (last_us - first_us) * (at_us - begins_us) // leg_us\n",
        "        return max(first_us, last_us)\n",
        tests=(f"{TEST_DELAYS}::test_jitter_is_give_or_take_however_close_packets_are",),
    ),
    one(
        "a rate carries its remainder",
        "small packets pass faster than the rate",
        f"{ROOM}/delays.py",
        "divmod(size * 1_000_000 + rest, self.how.rate)",
        "divmod(size * 1_000_000, self.how.rate)",
        tests=(f"{TEST_DELAYS}::test_a_rate_is_what_was_asked_for_whatever_size_packets_have",),
    ),
    one(
        "as many answers are swallowed as were named",
        "a client loses more than the experiment says",
        f"{ROOM}/relays/answers.py",
        "swallowing.swallowed < swallowing.what.count",
        "swallowing.swallowed <= swallowing.what.count",
        tests=(f"{TEST_ANSWERS}::test_what_is_swallowed_leaves_the_connection_silent",),
    ),
    one(
        "who has said all still hears, whatever the garbage collector does",
        "a connection from outside ends by itself",
        f"{ROOM}/relays/door.py",
        "        self._open.add(task)\n",
        "        self._open.discard(task)\n",
        tests=("tests/cluster/network/test_relay.py::test_who_has_said_all_still_hears",),
    ),
    one(
        "who does not read keeps no door alive",
        "a lab that is killed leaves processes",
        f"{ROOM}/relays/relay.py",
        "            end.reset()\n        raise\n    finally:\n",
        "            pass\n        raise\n    finally:\n",
        tests=(f"{TEST_GROUND}::test_a_door_ends_with_its_network_though_somebody_does_not_read",),
    ),
    one(
        "a relay reads ahead only where a link delays",
        "a thousand slow readers have all the memory there is",
        f"{ROOM}/relays/relay.py",
        "        if not when:  #",
        "        if when < 0:  #",
        tests=(
            "tests/cluster/network/test_relay.py::test_what_nobody_takes_stays_with_who_sent_it",
        ),
    ),
    one(
        "no pair takes the place of all others",
        "a node that stands still keeps other nodes from each other",
        f"{ROOM}/relays/pair_relays.py",
        "        if len(ends) >= self._ends_max - sum(",
        "        if 0 >= self._ends_max - sum(",
        tests=(
            "tests/cluster/network/test_pair_relays.py::test_no_pair_takes_the_place_of_all_others",
        ),
    ),
    one(
        "doors have room for what they are to carry",
        "clients of one node that stands still keep all others from theirs",
        f"{ROOM}/relays/relay.py",
        "            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))\n",
        "            pass\n",
        tests=(
            f"{TEST_GROUND}::test_a_node_that_takes_nothing_in_keeps_no_client_from_the_others",
        ),
    ),
    one(
        "what comes back goes by the link back",
        "a cut one way holds up the other direction",
        f"{ROOM}/relays/pair_relays.py",
        "        await self._relays.opened(self._pair[::-1], self._ends)\n",
        "        await self._relays.opened(self._pair, self._ends)\n",
        tests=(f"{TEST_PROXIES}::test_one_way_and_reset",),
    ),
    one(
        "who watches reaches every listener by a way of its own",
        "nobody can ask who is active once a controller within a broker is cut off",
        "cluster/networked.py",
        "        if node.watch_voter_port is not None:\n",
        "        if node.watch_voter_port is None:\n",
        tests=(f"{TEST_PLACED}::test_ways_in_lead_to_every_listener",),
    ),
    one(
        "a broker's rack is its zone",
        "all replicas may be in the zone that is cut off",
        "cluster/networked.py",
        "host=place.address, rack=place.zone)",
        "host=place.address)",
        tests=(f"{TEST_PLACED}::test_nodes_in_namespaces",),
    ),
    one(
        "a node that nobody wrote down is found by its command line",
        "nodes of a command that was killed run for ever",
        "cluster/nodes.py",
        "command_of(record, node)[-4:]",
        "command_of(record, node)[-3:-1]",
        tests=(f"{TEST_PLACED}::test_a_node_that_nobody_wrote_down_is_found",),
    ),
    one(
        "a process whose threads still end has not gone",
        "a node that is started again finds its own port taken",
        "cluster/processes.py",
        "    if state(pid, process) is not State.DEAD:\n        return False\n",
        "",
        tests=(f"{TEST_PLACED}::test_what_is_left_of_a_process",),
    ),
    one(
        "of brokers the one that knows most is asked first",
        "status shows what a broker that is cut off still believes",
        "cluster/local.py",
        "self._by_knowledge(record) if record.network else record.brokers",
        "record.brokers",
        tests=(f"{TEST_LOCAL}::test_a_leader_is_isolated_nodes_come_back_and_the_network_goes",),
    ),
    one(
        "a lab's network is not settled",
        "a lab that is killed leaves a network behind",
        "cluster/local.py",
        "network.make(settle=self.settles)",
        "network.make(settle=True)",
        tests=("tests/lab/test_lab_network.py::test_a_lab_that_is_killed_leaves_nothing",),
    ),
    one(
        "`down` ends the network",
        "namespaces and their servants stay for ever",
        "cluster/local.py",
        "            if network is not None:\n                self._end(network)\n",
        "",
        tests=(f"{TEST_LOCAL}::test_up_is_killed_at_any_moment",),
    ),
    one(
        "a node dials from its own address",
        "proxies take all nodes for one, and cut none of them off",
        "runtime/real.py",
        "local_addr=self._source",
        "local_addr=None",
        tests=("tests/runtime/test_real.py::test_it_dials_from_the_address_that_it_was_given",),
    ),
    one(
        "who does not read on a slowed link keeps nobody else waiting",
        "paused consumers silence producers behind proxies",
        f"{ROOM}/delays.py",
        "sharer.waiting_bytes > 0 and held > left - sharer.waiting_bytes",
        "held > left - sharer.waiting_bytes",
        tests=(f"{TEST_DELAYS}::test_no_sharer_of_a_link_has_more_than_is_left_for_its_others",),
    ),
    one(
        "a link that is lossy and cut is cut",
        "packets of a cut link count as lost",
        RULES,
        "    if link.cut is not None:\n        return _CUT\n",
        "    if link.cut is not None and not link.lose:\n        return _CUT\n",
        tests=(f"{TEST_TABLE}::test_a_lossy_link_that_is_cut_counts_as_cut_from_then_on",),
    ),
    one(
        "who is cut off from controllers knows no topics",
        "a topic that is down is called absent",
        "cli/watch/samples.py",
        "return quorum.lag(node) == 0 or is_fresh",
        "return True",
        tests=("tests/cli/test_cli_watch_topics.py",),
    ),
    one(
        "who alone is left knows no topics",
        "a broker that was cut off is believed since it alone runs",
        "cli/watch/known_topics.py",
        "not latest.tellers.isdisjoint(answers)",
        "True",
        tests=("tests/cli/test_cli_watch_agreed.py",),
    ),
)
