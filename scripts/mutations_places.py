"""Bugs in who has a connection, and in who has to go for another, as a sceptic would put them.

Owns the list for the tests that each names.
"""

from __future__ import annotations

from mutation import Mutation, one

ADMISSION = "node/door/admission.py"
CONNECTION = "node/door/connection.py"
CONTROLLER = "node/controller/controller.py"
ADDRESSES = "config/addresses.py"
TEST = "tests/node/test_admission.py"
TEST_CONNECTION = "tests/node/test_connection.py"
TEST_ADDRESSES = "tests/config/test_config_addresses.py"

PLACES: tuple[Mutation, ...] = (
    one(
        "who waits for an answer has to go first",
        "a flood closes on those who work",
        ADMISSION,
        "                waiting_counts and guest.is_owed,\n",
        "                not guest.is_owed,\n",
        tests=(f"{TEST}::test_a_newcomer_takes_the_place_of_who_is_missed_least",),
    ),
    one(
        "an address that has many is as good as one that has few",
        "a flood closes on strangers",
        ADMISSION,
        "                -held,\n",
        "                0,\n",
        tests=(f"{TEST}::test_a_newcomer_takes_the_place_of_who_is_missed_least",),
    ),
    one(
        "what brokers have beside clients' listeners goes as anything else",
        "a flood cuts a broker off from the others",
        ADMISSION,
        "                guest.is_protected,\n",
        "                False,\n",
        tests=(f"{TEST}::test_a_newcomer_takes_the_place_of_who_is_missed_least",),
    ),
    one(
        "an address's connections are counted together, whichever listener they came by",
        "a flood from a broker's own address takes its connections",
        ADMISSION,
        "        return self._protected if guest.is_protected else self._strangers\n",
        "        return self._strangers\n",
        tests=(f"{TEST}::test_clients_take_no_place_of_brokers",),
    ),
    one(
        "however many they are, who comes by the brokers' listener stays",
        "strangers at that port cut every client",
        ADMISSION,
        "            if len(self._protected) > len(self) // 2:\n",
        "            if not self._strangers.seats:\n",
        tests=(f"{TEST}::test_strangers_at_the_brokers_port_leave_half_to_clients",),
    ),
    one(
        "a controller's connections are counted with clients'",
        "clients cut a node off from its own controller",
        ADMISSION,
        "self.controllers if listener in self._controller_listeners else self.brokers\n",
        "self.brokers\n",
        tests=(f"{TEST}::test_a_controllers_connections_are_counted_apart",),
    ),
    one(
        "a flood that waits for answers stays",
        "a flood of parked fetches closes on those who are silent for a moment",
        ADMISSION,
        "                held <= fair,\n",
        "                True,\n",
        tests=(f"{TEST}::test_a_flood_that_waits_for_answers_makes_room_for_who_does_not",),
    ),
    one(
        "who goes for a newcomer is counted still",
        "a node that is full for ever",
        ADMISSION,
        "        going.abort()\n        self.leave(going)\n",
        "        going.abort()\n",
        tests=(f"{TEST}::test_a_newcomer_takes_the_place_of_who_is_missed_least",),
    ),
    one(
        "a connection whose end is told twice gives two places back",
        "more connections than an address may have",
        ADMISSION,
        "        if self._place_of(guest).take(guest):\n"
        "            _decrease(self._by_address, guest.host)\n",
        "        self._place_of(guest).take(guest)\n"
        "        _decrease(self._by_address, guest.host)\n",
        tests=(f"{TEST}::test_an_address_has_as_many_as_it_may",),
    ),
    one(
        "a place that was left is taken for ever",
        "finding 5: nobody gets in after as many as the limit have gone",
        ADMISSION,
        "            _decrease(self._by_address, guest.host)\n",
        "            pass\n",
        tests=(f"{TEST}::test_an_address_has_as_many_as_it_may",),
    ),
    one(
        "that somebody waits counts however many do",
        "parked fetches from eight addresses starve clients",
        ADMISSION,
        "waiting_counts and guest.is_owed",
        "guest.is_owed",
        tests=(f"{TEST}::test_strangers_who_wait_leave_half_to_clients_who_do_not",),
    ),
    one(
        "of whom nobody has looked at it is known that he does not wait",
        "brokers go for the first of a flood",
        ADMISSION,
        "total < FEW or 2 * owed <= known",
        "total < FEW or 2 * owed <= total",
        tests=(f"{TEST}::test_brokers_keep_their_places_from_strangers_at_their_own_port",),
    ),
    one(
        "that somebody waits counts for nobody",
        "a silent flood closes on who waits",
        ADMISSION,
        "total < FEW or 2 * owed <= known",
        "total < FEW",
        tests=(f"{TEST}::test_who_waits_stays_as_long_as_most_do_not",),
    ),
    one(
        "at half of all it counts for nobody that he waits",
        "a boundary",
        ADMISSION,
        "2 * owed <= known",
        "2 * owed < known",
        tests=(f"{TEST}::test_who_waits_stays_as_long_as_most_do_not",),
    ),
    one(
        "among few it counts for nobody that he waits",
        "a request is lost where few are open",
        ADMISSION,
        "total < FEW or ",
        "",
        tests=(f"{TEST}::test_a_newcomer_takes_the_place_of_who_is_missed_least",),
    ),
    one(
        "who has left is one of those who wait",
        "nobody's waiting counts for ever after",
        ADMISSION,
        "        self._know(seat, None)\n",
        "",
        tests=(f"{TEST}::test_who_has_left_waits_no_more",),
    ),
    one(
        "addresses of IPv6 are counted each by itself",
        "an eighth of all from each of 2^64 addresses",
        ADMISSION,
        "network_of(guest.host)",
        "guest.host",
        tests=(f"{TEST}::test_a_network_of_ipv6_counts_as_one_address",),
    ),
    one(
        "strangers at the brokers' port take clients' places past half",
        "not one client is left",
        ADMISSION,
        "                self._close_one(self._protected)\n",
        "                self._close_one(self._strangers, self._protected)\n",
        tests=(f"{TEST}::test_strangers_who_wait_at_the_brokers_port_leave_half_to_clients",),
    ),
    one(
        "max.connections closes those between brokers",
        "a low one stops replication",
        ADMISSION,
        "                self._close_one(self._strangers)\n        if",
        "                self._close_one(self._strangers, self._protected)\n        if",
        tests=(
            f"{TEST}::test_strangers_at_the_brokers_port_leave_half_of_max_connections_to_clients",
        ),
    ),
    one(
        "under a low max.connections brokers are let in no more",
        "a low one stops replication",
        ADMISSION,
        "            if not most and not is_protected:\n",
        "            if not most:\n",
        tests=(f"{TEST}::test_brokers_are_let_in_while_clients_are_closed_for_max_connections",),
    ),
    one(
        "those between brokers are not counted under max.connections",
        "more clients than in Apache Kafka",
        ADMISSION,
        "        return most - min(protected, (most + 1) // 2)\n",
        "        return most\n",
        tests=(f"{TEST}::test_max_connections_closes_none_between_brokers",),
    ),
    one(
        "under max.connections strangers at the brokers' port take all places",
        "not one client is left",
        ADMISSION,
        "min(protected, (most + 1) // 2)",
        "min(protected, most)",
        tests=(
            f"{TEST}::test_strangers_at_the_brokers_port_leave_half_of_max_connections_to_clients",
        ),
    ),
    one(
        "a controller that follows hears of no limits",
        "the limit of a pure controller is the file's",
        CONTROLLER,
        "            return\n        self._tell_door()\n",
        "            return\n",
        tests=(f"{TEST}::test_controllers_hear_of_new_limits_whether_they_lead_or_not",),
    ),
    one(
        "the active controller hears of no limits",
        "the limit of a combined node is the file's",
        CONTROLLER,
        "        if self._active:\n            self._tell_door()\n        else:\n",
        "        if not self._active:\n",
        tests=(f"{TEST}::test_a_node_knows_its_limits_and_hears_of_new_ones",),
    ),
    one(
        "a controller hears of limits before it has caught up",
        "connections are closed for a limit of long ago",
        CONTROLLER,
        "            self._note_configs(delta)\n",
        "            self._note_configs(delta)\n            self._tell_door()\n",
        tests=(f"{TEST}::test_controllers_hear_of_new_limits_whether_they_lead_or_not",),
    ),
    one(
        "an override is compared as it was written",
        "one that never matches",
        ADDRESSES,
        "    return str(address), int(most)\n",
        "    return text, int(most)\n",
        tests=(f"{TEST_ADDRESSES}::test_an_override_holds_however_its_address_is_written",),
    ),
    one(
        "an override in brackets is refused",
        "one of IPv6 as URLs have it",
        ADDRESSES,
        '    if text.startswith("[") and text.endswith("]"):\n        text = text[1:-1]\n',
        "",
        tests=(f"{TEST_ADDRESSES}::test_an_override_holds_however_its_address_is_written",),
    ),
    one(
        "who has not taken its answer yet goes as if it were silent",
        "a large answer is cut in the middle",
        CONNECTION,
        "bool(self.slots) or self._clogged",
        "bool(self.slots)",
        tests=(f"{TEST_CONNECTION}::test_who_is_in_the_middle_of_taking_an_answer_is_owed_it",),
    ),
)
