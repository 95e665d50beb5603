"""What `holdfast groups` prints, without a cluster: kafka-consumer-groups' lines, to the byte.

Goal: scripts that read Kafka's tool read us. Method: what Kafka 4.3's tool printed of such groups.

Rules: tools.md#describing-groups.
"""

from __future__ import annotations

import json

import pytest

from holdfast.cli.consumer_groups import group_tables as tables
from holdfast.cli.consumer_groups.group_tool import held, is_idle, is_there, why
from holdfast.clients.group_coordinators import Coordinator
from holdfast.clients.group_descriptions import Committed, Description, Listing, Member
from holdfast.clients.group_lags import PartitionLag
from holdfast.wire.administration import AdminError
from holdfast.wire.errors import ErrorCode

LONG = "tb-long-topic-name-for-widths"


def member(name: str, **values: object) -> Member:
    known: dict[str, object] = {
        "instance_id": None,
        "client_id": "c1",
        "host": "/127.0.0.1",
        "assignment": {},
    }
    return Member(id=name, **(known | values))  # type: ignore[arg-type]


def group(*members: Member, **values: object) -> Description:
    known: dict[str, object] = {
        "group": "g",
        "type": "Classic",
        "state": "Stable",
        "coordinator": Coordinator(0, "127.0.0.1", 46092),
        "assignor": "range",
    }
    return Description(members=list(members), **(known | values))  # type: ignore[arg-type]


LISTED = [
    Listing(group="a", protocol_type="consumer", state="Empty", type="Classic"),
    Listing(group="new-g", protocol_type="consumer", state="Stable", type="Consumer"),
]


@pytest.mark.parametrize(
    ("types", "states", "lines"),
    [
        (False, False, ["a", "new-g"]),
        (
            True,
            False,
            [
                "GROUP                     TYPE                ",
                "a                         Classic             ",
                "new-g                     Consumer            ",
            ],
        ),
        (
            True,
            True,
            [
                "GROUP                     TYPE                 STATE               ",
                "a                         Classic              Empty               ",
                "new-g                     Consumer             Stable              ",
            ],
        ),
    ],
)
def test_lists(types: bool, states: bool, lines: list[str]) -> None:
    assert tables.group_list(LISTED, types=types, states=states).split("\n") == [*lines, ""]


def test_a_list_without_groups_has_its_header() -> None:
    header = "GROUP                     STATE               \n"
    assert tables.group_list([], types=False, states=True) == header
    assert tables.group_list([], types=False, states=False) == ""


def test_a_long_name_widens_the_list() -> None:
    found = [Listing(group="x" * 20, protocol_type="")]
    text = tables.group_list(found, types=True, states=False)
    assert text.split("\n")[1] == f"{'x' * 20}           Unknown             "


ROWS = [
    PartitionLag(
        topic="ta", partition=2, committed=Committed(40, 3), log_end=41, member=member("m1")
    ),
    PartitionLag(topic=LONG, partition=11, committed=None, log_end=None, member=member("m1")),
    PartitionLag(topic="ta", partition=0, committed=Committed(5), log_end=40, member=None),
]


def test_offsets() -> None:
    assert tables.offsets("classic-g", ROWS, verbose=False).split("\n") == [
        "",
        (
            "GROUP           TOPIC                         PARTITION  CURRENT-OFFSET  "
            "LOG-END-OFFSET  LAG             CONSUMER-ID     HOST            CLIENT-ID"
        ),
        (
            "classic-g       ta                            2          40              "
            "41              1               m1              /127.0.0.1      c1"
        ),
        (
            "classic-g       tb-long-topic-name-for-widths 11         -               "
            "-               -               m1              /127.0.0.1      c1"
        ),
        (
            "classic-g       ta                            0          5               "
            "40              35              -               -               -"
        ),
        "",
    ]


def test_offsets_with_their_epochs() -> None:
    assert tables.offsets("g", [ROWS[0], ROWS[2]], verbose=True).split("\n")[1:] == [
        (
            "GROUP           TOPIC           PARTITION  LEADER-EPOCH    CURRENT-OFFSET  "
            "LOG-END-OFFSET  LAG             CONSUMER-ID     HOST            CLIENT-ID"
        ),
        (
            "g               ta              2          3               40              "
            "41              1               m1              /127.0.0.1      c1"
        ),
        (
            "g               ta              0          -               5               "
            "40              35              -               -               -"
        ),
        "",
    ]


def test_members() -> None:
    found = group(
        member("c1-6ae8f59a-5c8e", assignment={"ta": [0, 1], LONG: [3]}), member("m", host="/h")
    )
    assert tables.members(found, verbose=False).split("\n") == [
        "",
        "GROUP           CONSUMER-ID      HOST            CLIENT-ID       #PARTITIONS     ",
        "g               c1-6ae8f59a-5c8e /127.0.0.1      c1              3               ",
        "g               m                /h              c1              0               ",
        "",
    ]


def test_members_with_names_of_their_own() -> None:
    found = group(member("c1"), member("c2", instance_id="inst-1"))
    assert tables.members(found, verbose=False).split("\n")[1:3] == [
        (
            "GROUP           CONSUMER-ID     GROUP-INSTANCE-ID HOST            CLIENT-ID       "
            "#PARTITIONS     "
        ),
        (
            "g               c1                                /127.0.0.1      c1              "
            "0               "
        ),
    ]


def test_members_and_what_they_have() -> None:
    classic = group(member("m1", assignment={"a": [1, 0], "a-b": [10, 9]}), member("m2"))
    assert tables.members(classic, verbose=True).split("\n")[1:4] == [
        (
            "GROUP           CONSUMER-ID     HOST            CLIENT-ID       #PARTITIONS     "
            "CURRENT-EPOCH   CURRENT-ASSIGNMENT   TARGET-EPOCH    TARGET-ASSIGNMENT   "
        ),
        (
            "g               m1              /127.0.0.1      c1              4               "
            "-               a-b:9,10;a:0,1       -               -                   "
        ),
        (
            "g               m2              /127.0.0.1      c1              0               "
            "-               -                    -               -                   "
        ),
    ]
    modern = group(
        member("m1", epoch=5, assignment={"a": [0]}, target={"a": [0, 1]}, upgraded=True),
        type="Consumer",
        epoch=7,
        target_epoch=6,
    )
    assert tables.members(modern, verbose=True).split("\n")[2] == (
        "g               m1              /127.0.0.1      c1              1               "
        "5               a:0                  6               a:0,1               "
    )


def test_members_of_both_protocols() -> None:
    """A column more, only while a group is on its way from one protocol to the other."""
    mixed = group(
        member("m1", epoch=5, target={}, upgraded=True),
        member("m2", epoch=5, target={}, upgraded=False),
        target_epoch=6,
    )
    lines = tables.members(mixed, verbose=True).split("\n")
    assert lines[1].endswith("TARGET-ASSIGNMENT    UPGRADED")
    assert [line.rpartition(" ")[2] for line in lines[2:4]] == ["true", "false"]
    assert "UPGRADED" not in tables.members(mixed, verbose=False)


def test_nobody_is_a_table_too() -> None:
    assert tables.members(group(state="Empty"), verbose=False).split("\n") == [
        "",
        "GROUP           CONSUMER-ID     HOST            CLIENT-ID       #PARTITIONS     ",
        "",
    ]


def test_states() -> None:
    assert tables.state(group(member("m")), verbose=False).split("\n") == [
        "",
        (
            "GROUP           COORDINATOR (ID)          ASSIGNMENT-STRATEGY  STATE                "
            "#MEMBERS"
        ),
        "g               127.0.0.1:46092  (0)      range                Stable               1",
        "",
    ]
    found = group(assignor="", state="Empty", epoch=3, target_epoch=2)
    assert tables.state(found, verbose=True).split("\n")[1:3] == [
        (
            "GROUP           COORDINATOR (ID)          ASSIGNMENT-STRATEGY  STATE                "
            "GROUP-EPOCH     TARGET-ASSIGNMENT-EPOCH   #MEMBERS"
        ),
        (
            "g               127.0.0.1:46092  (0)      -                    Empty                "
            "3               2                         0"
        ),
    ]


def test_new_offsets() -> None:
    plans = {"empty-g": {("ta", 0): 5, (LONG, 11): 123}}
    assert tables.new_offsets(plans).split("\n") == [
        "",
        "GROUP           TOPIC                         PARTITION  NEW-OFFSET",
        "empty-g         ta                            0          5",
        "empty-g         tb-long-topic-name-for-widths 11         123",
        "",
    ]


def test_deleted_offsets() -> None:
    found = tables.deleted_offsets({("ta", 1): "Successful", ("no", -1): "Error: there is none"})
    assert found.split("\n") == [
        "",
        "TOPIC           PARTITION  STATUS         ",
        "no              -          Error: there is none",
        "ta              1          Successful     ",
        "",
    ]


@pytest.mark.parametrize(
    ("state", "note"),
    [
        ("Stable", ""),
        ("Empty", "\nConsumer group 'g' has no active members."),
        ("PreparingRebalance", "\nWarning: Consumer group 'g' is rebalancing."),
        ("CompletingRebalance", "\nWarning: Consumer group 'g' is rebalancing."),
        ("Assigning", "\nWarning: Consumer group 'g' is rebalancing."),
        ("Reconciling", "\nWarning: Consumer group 'g' is rebalancing."),
    ],
)
def test_notes(state: str, note: str) -> None:
    assert tables.note(group(state=state)) == note


def test_the_same_for_machines() -> None:
    """Goal: JSON with null for what there isn't. Method: read it back."""
    found = group(member("m1", assignment={"b": [1, 0], "a": [3]}, target={"a": [3]}, epoch=4))
    offsets = json.loads(json.dumps(tables.offsets_json(found, ROWS)))
    assert offsets["state"] == "Stable"
    first, second, third = offsets["partitions"]
    assert (first["current_offset"], first["lag"], first["leader_epoch"]) == (40, 1, 3)
    assert (second["current_offset"], second["lag"], second["log_end_offset"]) == (None,) * 3
    assert (third["consumer_id"], third["leader_epoch"]) == (None, None)
    (one,) = tables.members_json(found)["members"]
    assert list(one["assignment"].items()) == [("a", [3]), ("b", [0, 1])]
    assert (one["target_assignment"], one["epoch"]) == ({"a": [3]}, 4)
    state = tables.state_json(found)
    assert (state["coordinator"]["port"], state["member_count"]) == (46092, 1)
    assert tables.list_json(LISTED)[1] == {"group": "new-g", "type": "Consumer", "state": "Stable"}


def test_who_holds_a_group() -> None:
    """Goal: a refusal that says whom to stop, and where. Method: two members, none, many."""
    two = group(member("m1"), member("m2", client_id="pay", host="/10.0.0.7"))
    assert held(two, "reset") == (
        "--group g: it is Stable and can only be reset while nobody is in it. "
        "Stop its members first: m1 (client c1) on 127.0.0.1; m2 (client pay) on 10.0.0.7."
    )
    assert "Ask again" in held(group(state="PreparingRebalance"), "deleted")
    many = group(*(member(f"m{number}") for number in range(30)))
    assert held(many, "reset").endswith("m9 (client c1) on 127.0.0.1; and 20 more.")


def test_who_may_be_changed() -> None:
    gone = AdminError("x", ErrorCode.GROUP_ID_NOT_FOUND)
    denied = AdminError("x", ErrorCode.GROUP_AUTHORIZATION_FAILED)
    answers: list[Description | AdminError] = [
        group(),
        group(state="Empty"),
        group(state="Dead"),
        gone,
        denied,
    ]
    assert [is_idle(each) for each in answers] == [False, True, True, True, False]
    assert [is_there(each) for each in answers] == [True, True, False, False, True]
    assert why(gone) == "there is no such group (GROUP_ID_NOT_FOUND)"
    assert why(AdminError("x", ErrorCode.INVALID_GROUP_ID, "no")) == "no (INVALID_GROUP_ID)"
