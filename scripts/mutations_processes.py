"""Bugs in what starts, breaks and watches processes: clusters, scenarios, a run and its end.

The simulator runs none of it, so each names the tests that have to find it.
"""

from __future__ import annotations

from mutation import Mutation, one

_PROCESSES = "cluster/processes.py"
_PORTS = "cluster/ports.py"
_CLOSING = "lab/steps/closing.py"

_SOAK = "lab/soak/campaign.py"
_SOAK_GROUPS = "lab/soak/group_campaigns.py"
_SOAK_SCENARIOS = "lab/soak/scenario_campaigns.py"
_CHAOS = "lab/steps/group_chaos.py"
_RUN = "lab/run.py"
_MISHAPS = "lab/steps/mishaps.py"
_VIEWS = "testing/simulation/groups/views.py"

_TEST_GROUP_MEMBERS = ("tests/simulate/test_simulate_group_members.py",)
_TEST_RUN = ("tests/lab/test_lab_run.py",)
_TEST_GROUPS = ("tests/lab/test_lab_groups.py",)
_TEST_PROCESSES = ("tests/cluster/test_cluster_processes.py",)
_TEST_PORTS = ("tests/cluster/test_cluster_ports.py",)
_TEST_CLOSING = ("tests/lab/test_lab_closing.py",)
_TEST_DISK_FAULTS = ("tests/simulate/test_simulate_disk_faults.py",)
_TEST_READABLE = ("tests/simulate/test_simulate_readable.py",)
_TEST_GAVE_UP = ("tests/lab/test_lab_gave_up.py",)
_TEST_EXPECTATIONS = ("tests/lab/test_lab_expectations.py",)

PROCESSES: tuple[Mutation, ...] = (
    # -- whom a signal reaches ------------------------------------------------------------------
    one(
        "a signal reaches whoever has the pid now",
        "a stranger is killed",
        _PROCESSES,
        "    if facts is None or facts[1] != process:\n",
        "    if facts is None:\n",
        tests=_TEST_PROCESSES,
    ),
    one(
        "a process of another boot is taken for ours",
        "a stranger is killed",
        _PROCESSES,
        "f\"{_read('/proc/sys/kernel/random/boot_id').strip()}/{ticks}\"",
        'f"/{ticks}"',
        tests=_TEST_PROCESSES,
    ),
    one(
        "a zombie is alive",
        "a fault that was not made",
        _PROCESSES,
        '    **dict.fromkeys("ZXx", State.DEAD),',
        '    **dict.fromkeys("Xx", State.DEAD),',
        tests=_TEST_PROCESSES,
    ),
    one(
        "a stopped process runs",
        "a fault that was not made",
        _PROCESSES,
        '    **dict.fromkeys("Tt", State.STOPPED),',
        '    **dict.fromkeys("t", State.STOPPED),',
        tests=_TEST_PROCESSES,
    ),
    one(
        "an error shows what an earlier process wrote",
        "the wrong cause",
        _PROCESSES,
        '    text = text.rpartition(f"{START_MARK}\\n")[2]\n',
        "",
        tests=_TEST_PROCESSES,
    ),
    # -- ports and directories ------------------------------------------------------------------
    one(
        "two processes take ports of one block",
        "a node of another cluster answers",
        _PORTS,
        "        guard.detach()  # the kernel closes it\n",
        "        guard.close()\n",
        tests=_TEST_PORTS,
    ),
    one(
        "a fork gives out its parent's ports",
        "a node of another cluster answers",
        _PORTS,
        "    if _own is None or _own.process != os.getpid():\n",
        "    if _own is None:\n",
        tests=_TEST_PORTS,
    ),
    one(
        "two commands change a cluster at once",
        "a lost update",
        "cluster/layout.py",
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
        tests=("tests/cluster/test_cluster_layout.py",),
    ),
    # -- the end of a run -----------------------------------------------------------------------
    one(
        "replicas that end apart are no failed check",
        "an undecided run is kept",
        _CLOSING,
        'run.check(f"replicas of {topic}", "end at one offset", str(looks.ends), kept=False)',
        'run.check(f"replicas of {topic}", "end at one offset", str(looks.ends), kept=True)',
        tests=_TEST_CLOSING,
    ),
    one(
        "a partition whose replicas end apart counts as settled",
        "a loss is not looked for",
        _CLOSING,
        "        if len(set(each.values())) == 1\n",
        "",
        tests=_TEST_CLOSING,
    ),
    one(
        "a final read that breaks off ends nothing",
        "an undecided run is kept",
        _CLOSING,
        "        worker.wait(bound_s + WORK_S)\n",
        "        assert worker\n",
        tests=_TEST_CLOSING,
    ),
    one(
        "a replica whose files are damaged is passed over",
        "a loss is not looked for",
        _CLOSING,
        'files of {node}", "whole", look.wrong, kept=False)',
        'files of {node}", "whole", look.wrong, kept=True)',
        tests=_TEST_CLOSING,
    ),
    one(
        "replicas on a second disk are not looked at",
        "a loss is not looked for",
        _CLOSING,
        'for each in value.split(",")]',
        'for each in value.split(",")[:1]]',
        tests=_TEST_CLOSING,
    ),
    one(
        "a read goes on where a replica was cut back",
        "an end that is none",
        "clients/replica_files.py",
        "        return file.read(len(self._last)) == self._last\n",
        "        return True\n",
        tests=("tests/lab/test_lab_clients.py",),
    ),
    # -- what a run leaves behind ---------------------------------------------------------------
    one(
        "whoever was killed has left its processes",
        "clients that send for ever",
        "lab/guard.py",
        "    end_marked(mark)\n",
        "    assert mark\n",
        tests=("tests/lab/test_lab_guard.py",),
    ),
    one(
        "of old proofs the broken ones go, too",
        "evidence is gone",
        "lab/keeping.py",
        'verdict.get("exit") == Exit.KEPT',
        'verdict.get("exit") is not None',
        tests=("tests/lab/test_lab_keeping.py",),
    ),
    one(
        "the driver's arguments have the password",
        "anybody can read it",
        "lab/demo/spark.py",
        "places.named(plan)",
        "places.database(plan)",
        tests=("tests/demo/test_demo_password.py",),
    ),
    # -- what scenarios expect ------------------------------------------------------------------
    one(
        "a broker with an empty disk may lead",
        "KIP-966",
        "lab/scenarios/disk_lost.py",
        "        kept=not back.led,\n",
        "        kept=True,\n",
        tests=_TEST_EXPECTATIONS,
    ),
    one(
        "whoever comes back in sync may lack what was committed",
        "KIP-966",
        "lab/scenarios/disk_lost.py",
        "back.held.get(p, -1) < committed[p]]",
        "back.held.get(p, -1) < 0]",
        tests=_TEST_EXPECTATIONS,
    ),
    one(
        "as many failures as min ISR lose nothing",
        "the law of min ISR",
        "lab/scenarios/min_isr_law.py",
        "    return failures < cell.min_isr or not cell.disks_lost\n",
        "    return failures <= cell.min_isr or not cell.disks_lost\n",
        tests=_TEST_EXPECTATIONS,
    ),
    one(
        "an idempotent producer that met a gap is a run that could not be made",
        "a loss is undecided",
        _MISHAPS,
        "    if isinstance(problem, GaveUpError) and Anomaly.LOST in",
        "    if isinstance(problem, GaveUpError) and None in",
        tests=_TEST_GAVE_UP,
    ),
    one(
        "a producer that can not go on ends well",
        "a loss is not looked for",
        "clients/workload/verifiable_producer.py",
        "            return GAVE_UP\n",
        "            return 0\n",
        tests=_TEST_GAVE_UP,
    ),
    one(
        "a full disk that no leader met is kept",
        "a false acknowledgement that nobody could see",
        "lab/aftermath.py",
        "        if (process, error) in self._met:\n",
        "        if (process, error) in self._met or self._met:\n",
        tests=_TEST_GAVE_UP,
    ),
    one(
        "what a leader said that it had written counts as lost with its disk",
        "a false acknowledgement is excused",
        "lab/scenarios/disk_full.py",
        "offset is not None and offset < end for offset",
        "offset is not None for offset",
        tests=_TEST_GAVE_UP,
    ),
    # -- what the simulator must see ------------------------------------------------------------
    one(
        "who pipelines need not be served again",
        "a partition without service that nobody asks for",
        "testing/simulation/refusals.py",
        "        if found is None or key in metadata.operator_unclean:\n",
        "        if producer.pipelined or found is None or key in metadata.operator_unclean:\n",
        tests=("tests/simulate/test_simulate_refusals.py",),
    ),
    one(
        "a batch of any size is refused as too large",
        "an excuse without its batch",
        "testing/simulation/refusals.py",
        "    if limit is not None and HEADER_SIZE + size + _CODEC_BYTES_MAX > int(limit):\n",
        "    if limit is not None:\n",
        tests=("tests/simulate/test_simulate_refusals.py",),
    ),
    one(
        "who gives up counts as served",
        "acks=all that waits for the dead",
        "testing/simulation/clients.py",
        "        self.generation += 1\n",
        "        self.generation += 1\n        self.served_s = asyncio.get_running_loop().time()\n",
        tests=("tests/simulate/test_simulate_refusals.py",),
    ),
    one(
        "what is wrong with one batch excuses all others",
        "an excuse without its batch",
        "testing/simulation/refusals.py",
        "        batch = batches[history.batches[event.id]]\n",
        "        batch = [each for some in batches.values() for each in some]\n",
        tests=("tests/simulate/test_simulate_refusals.py",),
    ),
    one(
        "what no log ever held is forgiven where anything is",
        "an excuse without its epoch",
        "testing/simulation/truth.py",
        "        epoch = leads_in if entry is None else entry.epoch  #",
        "        epoch = None if entry is None else entry.epoch  #",
        tests=("tests/simulate/test_simulate_truth.py",),
    ),
    one(
        "a record of an unknown epoch may be gone",
        "an excuse without its epoch",
        "testing/simulation/allowances.py",
        "        return self.since <= epoch < self.epoch and self.offset <= offset < self.end\n",
        "        known = epoch < 0 or self.since <= epoch\n"
        "        return known and epoch < self.epoch and self.offset <= offset < self.end\n",
        tests=("tests/simulate/test_simulate_truth.py",),
    ),
    one(
        "any disk may refuse a reader",
        "an excuse without its event",
        "testing/simulation/readable.py",
        "        return oracle.faults.offline(node)\n",
        "        return True\n",
        tests=_TEST_READABLE,
    ),
    one(
        "who leads may say that it does not",
        "an excuse without its broker",
        "testing/simulation/readable.py",
        "    return code in _BY_OTHERS and (goes or not led)\n",
        "    return code in _BY_OTHERS\n",
        tests=_TEST_READABLE,
    ),
    one(
        "nobody waits for readers",
        "consumers that are refused for ever",
        "testing/simulation/readers.py",
        "        self._goals = {n: min(end, self._next[n] + 1) for n, end in ends.items()}\n",
        "        self._goals = {}\n",
        tests=_TEST_READABLE,
    ),
    one(
        "whoever leads may call a sequence out of order",
        "an excuse without its broker",
        "testing/simulation/clients.py",
        "        (told.update if deposed else told.difference_update)(batch.sends)\n",
        "        told.update(batch.sends)\n",
        tests=("tests/simulate/test_simulate_refusals.py",),
    ),
    one(
        "a voter is to have what a snapshot says in its log, too",
        "seed 925000000666",
        "testing/simulation/truth.py",
        "        if self._voters is None:\n            deleted = min(",
        "        if self.start_max >= 0:\n            deleted = min(",
        tests=("tests/simulate/test_simulate_truth.py",),
    ),
    one(
        "who leads no longer is taken to have heard what the next one has",
        "seed 184718145235: a coordinator that stood still is blamed for what it could not know",
        _VIEWS,
        "            if each.node == node or (each.leads and each.asked_s <= until_s)\n",
        "            if each.node == node or each.leads\n",
        tests=_TEST_GROUP_MEMBERS,
    ),
    one(
        "who leads no longer is taken to have heard nothing itself since",
        "an excuse to refuse a member that was just told that all is well",
        _VIEWS,
        "            if each.node == node or (each.leads and each.asked_s <= until_s)\n",
        "            if each.leads and each.asked_s <= until_s\n",
        tests=_TEST_GROUP_MEMBERS,
    ),
    one(
        "who was elected is taken to know what it has heard itself alone",
        "an excuse to refuse a member whose session has just begun anew",
        _VIEWS,
        "            if each.node == node or (each.leads and each.asked_s <= until_s)\n",
        "            if each.node == node\n",
        tests=_TEST_GROUP_MEMBERS,
    ),
    one(
        "who leads no longer may give up members of either kind",
        "an excuse for what no coordinator does without a record",
        "testing/simulation/groups/answers.py",
        "        known |= as_other and not view.may_be_out(now_s)\n",
        "        known |= as_other and not view.may_be_out_of(node, until_s, now_s)\n",
        tests=_TEST_GROUP_MEMBERS,
    ),
    one(
        "an offset may be left out by its topic's name, whoever had that",
        "an excuse without its topic: a committed offset that is told to nobody",
        "testing/simulation/groups/group_oracle.py",
        "        return topic_id in self._ids_of(topic)[:-1]\n",
        "        return topic_id in self._ids_of(topic)\n",
        tests=("tests/simulate/test_simulate_group_offsets.py",),
    ),
    one(
        "a fault that has struck nothing excuses a loss",
        "an excuse without its event",
        "testing/simulation/disk_faults.py",
        "        return any(fault.struck for fault in self._faults.get(node, ()))\n",
        "        return bool(self._faults.get(node))\n",
        tests=_TEST_DISK_FAULTS,
    ),
    one(
        "a disk that has failed excuses losses for ever",
        "an excuse without its event",
        "testing/simulation/disk_faults.py",
        "        if node in self._begun_anew:\n",
        "        if node in self._begun_anew and not self._all:\n",
        tests=_TEST_DISK_FAULTS,
    ),
    # -- what a long run must see -----------------------------------------------------------------
    one(
        "a gap in a log is a long run of groups that could not be made",
        "a break that is repeated until it is gone",
        _SOAK_GROUPS,
        "                broke_off = break_off(run, problem)\n",
        "                broke_off = str(problem)\n",
        tests=_TEST_GAVE_UP,
    ),
    one(
        "a gap in a log is a long run of kills that could not be made",
        "a break that is repeated until it is gone",
        _SOAK_SCENARIOS,
        "                broke_off = break_off(run, problem)\n",
        "                broke_off = str(problem)\n",
        tests=_TEST_GAVE_UP,
    ),
    one(
        "failed checks are forgotten where a history can't be judged",
        "a break that is repeated until it is gone",
        _SOAK,
        "    not_kept = [] if run is None else failed(run)\n",
        "    not_kept: list[str] = []\n",
        tests=_TEST_GAVE_UP,
    ),
    one(
        "a node that has ended by itself makes a run that could not be made",
        "a break that is repeated until it is gone",
        _RUN,
        "            refuse_dead(self, node)\n",
        "",
        tests=_TEST_RUN,
    ),
    one(
        "nobody misses a node that has ended by itself",
        "a node that crashes, and the others do without it",
        _MISHAPS,
        '        run.check(f"nodes that run {when}", "all of them", seen, kept=not own)\n',
        '        run.check(f"nodes that run {when}", "all of them", seen, kept=True)\n',
        tests=_TEST_RUN,
    ),
    one(
        "a kind of fault may not come at all",
        "a long run without a controller's death",
        _CHAOS,
        "            left = left or self._drawn()\n",
        "            left = self._drawn()\n",
        tests=_TEST_GROUPS,
    ),
    one(
        "a coordinator's followers have what it took last",
        "a commit that is acknowledged before it is replicated",
        _CHAOS,
        '        self._run.fault("STOP", *others)\n        self._run.steady_view(ALONE_S)\n',
        "        self._run.steady_view(ALONE_S)\n",
        tests=_TEST_GROUPS,
    ),
    one(
        "who is thrown out had nothing to commit",
        "a commit of a generation that has passed",
        _CHAOS,
        "        is_at_work = name in NEEDS_WORK or self._chance.random() < AT_WORK\n",
        "        is_at_work = self._chance.random() < AT_WORK\n",
        tests=_TEST_GROUPS,
    ),
    one(
        "every key of a compacted topic comes again",
        "a round that takes what it must keep",
        "lab/scenarios/compacted_topic.py",
        'f"{ONLY}-{next(keys)}"',
        "ONLY",
        tests=("tests/lab/test_lab_usual.py",),
    ),
    one(
        "nobody need be told what a group has committed",
        "a coordinator that never says it",
        "lab/group.py",
        "            lambda: self._observer.looked_ms > since_ms,\n",
        "            lambda: True,\n",
        tests=_TEST_GROUPS,
    ),
    one(
        "an election is asked for once while a new disk is not known",
        "Apache Kafka is called broken for refusing what it lets be asked again",
        "lab/scenarios/disk_lost.py",
        "    for _ in range(ELECTIONS):\n",
        "    for _ in range(1):\n",
        tests=_TEST_EXPECTATIONS,
    ),
    one(
        "what was broken and never stamped is put aside",
        "a rare loss is overwritten by the next run, and its evidence gone",
        "cli/proving/prove_aside.py",
        "matrix.code_in(folder) not in (None, code)",
        "matrix.code_in(folder) != code",
        tests=("tests/lab/test_lab_matrix_aside.py",),
    ),
    one(
        "what one profile has broken counts for that one",
        "a loss under Kafka's defaults is told of the lab's, where nobody finds it",
        "cli/proving/prove_aside.py",
        "is_of_profile = matrix.profile_in(folder) in (None, self.profile)",
        "is_of_profile = True",
        tests=("tests/lab/test_lab_matrix_profiles.py",),
    ),
    one(
        "what is known to be broken outlives its disk",
        "a loss that was seen ends as status 2, without a row",
        "cli/proving/prove_all.py",
        "row = row if _is_broken(row) else self._broken.get(run, row)",
        "pass",
        tests=("tests/lab/test_lab_matrix_stopped.py",),
    ),
    one(
        "what is installed names no folder",
        "nodes take a package of others for a module of Python's",
        "cluster/own_code.py",
        'named = "" if _is_found(inherited) else SOURCE',
        "named = SOURCE",
        tests=("tests/cluster/test_own_code.py",),
    ),
)
