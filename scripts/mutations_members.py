"""Bugs in members of groups, in what the lab does to them, and in what is said of them."""

from __future__ import annotations

from mutation import Mutation, one

MEMBER = "clients/workload/verifiable_member.py"
COMMITS = "clients/workload/member_commits.py"
DIARY = "clients/workload/group_diary.py"
SINK = "clients/workload/member_sink.py"
READER = "clients/workload/verifiable_consumer.py"
COORDINATORS = "clients/group_coordinators.py"
OBSERVER = "lab/group_observer.py"
GROUP = "lab/group.py"
RESULTS = "lab/steps/group_results.py"

TEST_MEMBERS = "tests/lab/test_lab_members.py"
TEST_GROUPS = "tests/lab/test_lab_groups.py"
TEST_READERS = "tests/lab/test_lab_witnesses.py"
TEST_COORDINATORS = "tests/clients/test_group_coordinators.py"
TEST_VERDICT = "tests/lab/test_lab_group_verdict.py"
TEST_DEMO = "tests/demo/test_demo_readers.py"

LIE = "a history that says more than its member knows"
ZOMBIE = "a member that works on what is another's"
UNSEEN = "a broken promise that nobody is told of"
SLANDER = "a cluster called broken by what its clients or the lab did"


MEMBERS: tuple[Mutation, ...] = (
    # -- members ---------------------------------------------------------------------------------
    one(
        "a refusal of what the client sent again is told as certain",
        LIE,
        COMMITS,
        "        elif is_first and error.code() in COMMITS_NOTHING:\n",
        "        elif error.code() in COMMITS_NOTHING:\n",
        tests=(TEST_MEMBERS,),
    ),
    one(
        "a commit is asked for before it is on disk",
        LIE,
        DIARY,
        "            asked.append(commit)\n        self._recorder.flush()\n",
        "            asked.append(commit)\n",
        tests=(TEST_MEMBERS,),
    ),
    one(
        "epoch 0 is taken for a membership",
        LIE,
        DIARY,
        "        return bool(self.member) and self.epoch > 0\n",
        "        return bool(self.member) and self.epoch >= 0\n",
        tests=(TEST_MEMBERS,),
    ),
    one(
        "who is not told where to begin does not go back once it is",
        LIE,
        MEMBER,
        "            if self._has_gone_to(partition, place.offset):\n",
        "            if place:\n",
        tests=(TEST_MEMBERS,),
    ),
    one(
        "who gives up what it was not told to begin with asks on",
        ZOMBIE,
        MEMBER,
        "        self._untold -= waiting\n",
        "",
        tests=(TEST_MEMBERS,),
    ),
    one(
        "a member without an instance ends as if another one had it",
        SLANDER,
        MEMBER,
        "is_fatal and (self._options.instance is not None or self._fatal > FATAL_MAX)",
        "is_fatal",
        tests=(TEST_MEMBERS,),
    ),
    one(
        "a member takes one client after the other, whatever ends them",
        "a cluster without a protocol is called broken, by a thousand clients",
        MEMBER,
        "        self._fatal += is_fatal\n",
        "",
        tests=(TEST_MEMBERS,),
    ),
    one(
        "who is out still begins with what it was not told of",
        ZOMBIE,
        MEMBER,
        "[*self._next, *self._untold], lost=True)\n            self._fenced",
        "list(self._next), lost=True)\n            self._fenced",
        tests=(TEST_MEMBERS,),
    ),
    one(
        "a member stays with a client that has lost all brokers",
        SLANDER,
        MEMBER,
        "            if self._doubts > 2:\n",
        "            if False:\n",
        tests=(TEST_MEMBERS,),
    ),
    one(
        "a member leaves its client in an outage",
        SLANDER,
        MEMBER,
        "self._others_reach_brokers() if self._doubts == 1 else not self._reaches_brokers()",
        "not self._reaches_brokers()",
        tests=(TEST_MEMBERS,),
    ),
    one(
        "a member leaves a client whose brokers are back",
        SLANDER,
        MEMBER,
        "            if self._doubts > 2:\n",
        "            if self._doubts > 1:\n",
        tests=(TEST_MEMBERS,),
    ),
    one(
        "a reader forgets whom it was not told by",
        UNSEEN,
        READER,
        "            self._lost.update(dict.fromkeys(silent))\n",
        "",
        tests=(TEST_READERS,),
    ),
    one(
        "a reader that was never told where to begin has not failed",
        UNSEEN,
        READER,
        "            if self._untold and not options.until_end and time.monotonic() >= deadline:\n",
        "            if False:\n",
        tests=(TEST_READERS,),
    ),
    one(
        "what a former coordinator says is believed",
        SLANDER,
        OBSERVER,
        " or self._coordinators.is_doubted(self._group):\n",
        ":\n",
        tests=(TEST_GROUPS,),
    ),
    one(
        "a broker that has not heard who coordinates casts doubt on who does",
        UNSEEN,
        COORDINATORS,
        "                found.node_id == node and not found.error_code\n",
        "                found.node_id != self.of(group).node\n",
        tests=(TEST_COORDINATORS,),
    ),
    one(
        "records of a partition that was given up stay in the batch",
        ZOMBIE,
        MEMBER,
        "        self._batch[:] = [each for each in self._batch if each.partition() not in mine]\n",
        "",
        tests=(TEST_MEMBERS,),
    ),
    one(
        "who is no member any more works on until its client says so",
        ZOMBIE,
        MEMBER,
        "            self._give_up([*self._next, *self._untold], lost=True)\n"
        '            self._fenced = self._fenced or "FENCED_INSTANCE_ID" in errors\n',
        '            self._fenced = self._fenced or "FENCED_INSTANCE_ID" in errors\n',
        tests=(TEST_MEMBERS,),
    ),
    one(
        "who is behind does not wait for its new generation",
        ZOMBIE,
        MEMBER,
        "            self._behind = me\n",
        "            self._behind = None\n",
        tests=(TEST_MEMBERS,),
    ),
    one(
        "records before a member's place are processed",
        ZOMBIE,
        MEMBER,
        "        if message.offset() >= self._next.get(message.partition(), sys.maxsize):\n",
        "        if message.partition() in self._next:\n",
        tests=(TEST_MEMBERS,),
    ),
    one(
        "what was done is not committed before it is given up",
        "records are processed again that need not be",
        MEMBER,
        '        if done and not lost and self._options.commits == "after" '
        "and not self._options.careless:\n",
        "        if done and lost:\n",
        tests=(TEST_MEMBERS,),
    ),
    one(
        "the offset does not stop a member that was replaced",
        ZOMBIE,
        SINK,
        "            if position != offset:\n",
        "            if position is None:\n",
        tests=(TEST_MEMBERS,),
    ),
    one(
        "results and the offset behind them are two transactions",
        "a result without its offset",
        SINK,
        "            if self.keeps_positions:\n                self._move_on(results)\n",
        "",
        tests=(TEST_MEMBERS,),
    ),
    # -- the lab ---------------------------------------------------------------------------------
    one(
        "a member is killed before that is in the history",
        "an excuse that comes too late",
        GROUP,
        '        if action != "CONT":\n            for member in members:\n'
        "                self.note_fault(action, member)\n",
        "",
        tests=(TEST_GROUPS,),
    ),
    one(
        "partitions count as shared before their owners have begun",
        "a wait that ends too soon",
        GROUP,
        "        owned = [set(member.told.begun) for member in members]\n",
        "        owned = [set(member.told.owned) for member in members]\n",
        tests=(TEST_GROUPS,),
    ),
    one(
        "results that are there twice are not looked for",
        UNSEEN,
        RESULTS,
        "    doubled = sorted(place for place, count in found.items() if count > 1)\n",
        "    doubled = sorted(place for place, count in found.items() if count > 9)\n",
        tests=(TEST_GROUPS,),
    ),
    # -- the verdict -----------------------------------------------------------------------------
    one(
        "the judge of groups is shown nothing",
        UNSEEN,
        "judge/checker.py",
        "        self._groups.feed(run)\n",
        "",
        tests=(TEST_VERDICT,),
    ),
    one(
        "what groups broke breaks no run",
        UNSEEN,
        "lab/outcome.py",
        '        groups = (f"{each.value}, by a group" for each in self.broken_groups)\n',
        '        groups = (f"{each.value}, by a group" for each in ())\n',
        tests=(TEST_VERDICT,),
    ),
    one(
        "a control that breaks more than was foretold is taken for one",
        "a proof that proves nothing",
        "lab/outcome.py",
        "        return foretold in self.broken_groups and "
        "not self.evidence.groups.broken(weaker)\n",
        "        return foretold in self.broken_groups\n",
        tests=(TEST_VERDICT,),
    ),
    one(
        "a group that was never left in peace decides a run",
        "a proof that proves nothing",
        "lab/outcome.py",
        "        return self.evidence.judgement.undecided + self.evidence.groups.undecided\n",
        "        return self.evidence.judgement.undecided\n",
        tests=(TEST_VERDICT,),
    ),
    one(
        "the demo's group is not held to its promise",
        UNSEEN,
        "lab/demo/demo_check.py",
        "        kept=not broken,\n    )\n\n\ndef _log_check",
        "        kept=True,\n    )\n\n\ndef _log_check",
        tests=(TEST_DEMO,),
    ),
    one(
        "results without an offset are put in behind the moment of a death",
        UNSEEN,
        MEMBER,
        "            if self._sink is not None and not self._sink.keeps_positions:\n",
        "            if self._sink is None:\n",
        tests=(TEST_MEMBERS,),
    ),
    one(
        "a run without its group is kept",
        UNSEEN,
        "lab/prove.py",
        "with_groups=parameters.group_promise is not None",
        "with_groups=False",
        tests=(TEST_VERDICT,),
    ),
    one(
        "a calm that shows nothing is enough",
        UNSEEN,
        "judge/groups/waiting.py",
        "        is_long = at_ms - group.peace_ms > calm.stuck_ms\n",
        "        is_long = True\n",
        tests=("tests/judge/test_judge_group_rules.py",),
    ),
    one(
        "the tail of a log may stay undone",
        UNSEEN,
        "lab/workload_processes.py",
        "                end = max(event.offset + 1, self.ends.get(event.partition, 0))\n",
        "                end = self.ends.get(event.partition, 0) + 1\n",
        tests=(TEST_GROUPS,),
    ),
)
