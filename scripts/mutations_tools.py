"""Bugs in what the tools for groups and logs tell their users.

Owns the list for the tests that each names.
"""

from __future__ import annotations

from mutation import Mutation, one

INSPECTION = "clients/partition_inspection.py"
STATEMENTS = "clients/replica_statements.py"
TEST_INSPECTION = "tests/clients/test_partition_inspection.py"

TOOLS: tuple[Mutation, ...] = (
    one(
        "what compaction took is said to be readable",
        "nobody is told of a message that is not there",
        INSPECTION,
        "return Standing.REMOVED if leader.shows(offset) is False else Standing.COMMITTED",
        "return Standing.COMMITTED",
        tests=(TEST_INSPECTION,),
    ),
    one(
        "a follower is believed to have what its leader compacted",
        "a replica holds what was read there",
        INSPECTION,
        "    if shown is None and standing is not Standing.REMOVED:\n",
        "    if shown is None:\n",
        tests=(TEST_INSPECTION,),
    ),
    one(
        "a batch that was read elsewhere shows a hole",
        "only a read at an offset shows what is there",
        STATEMENTS,
        "if self.batch is None or self.read_at != offset:",
        "if self.batch is None:",
        tests=(TEST_INSPECTION,),
    ),
    one(
        "a batch that nobody can read has lost its messages",
        "nothing is said to be missing that may be there",
        STATEMENTS,
        "    except WireError:  # nobody can read it: that something is missing is not known\n"
        "        return header, frozenset()\n",
        "    except WireError:  # nobody can read it: that something is missing is not known\n"
        "        return header, offsets\n",
        tests=(TEST_INSPECTION,),
    ),
    one(
        "cat -G gives up while its coordinator is made",
        "the first group of a new cluster is read",
        "cli/cat/cat_group.py",
        "if refusal.code() in COMING and time.monotonic() < end:",
        "if refusal.code() in COMING and time.monotonic() > end:",
        tests=("tests/cli/test_cli_cat_group.py",),
    ),
    one(
        "cat -G waits for its coordinator for ever",
        "a wait has a bound",
        "cli/cat/cat_group.py",
        "if refusal.code() in COMING and time.monotonic() < end:",
        "if refusal.code() in COMING:",
        tests=("tests/cli/test_cli_cat_group.py",),
    ),
    one(
        "a mark before a plan belongs to its first name",
        "a plan that a spreadsheet has written is read",
        "cli/consumer_groups/reset_values.py",
        'encoding="utf-8-sig"',
        'encoding="utf-8"',
        tests=("tests/cli/test_cli_group_values.py",),
    ),
    one(
        "a controller is taken for a broker that lacks an API",
        "who names a controller's port is told so",
        "clients/blocking_driver.py",
        "            if not self._serves_clients():\n",
        "            if False:\n",
        tests=("tests/clients/test_driver.py",),
    ),
)
