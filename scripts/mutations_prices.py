"""Bugs in what scenarios measure: figures that are not of what their tables say.

Owns the list for the tests that each names.
"""

from __future__ import annotations

from mutation import Mutation, one

SCENARIOS = "lab/scenarios"
COPIES = f"{SCENARIOS}/replication_price.py"
SIZES = f"{SCENARIOS}/payload_curve.py"
GROUPS = f"{SCENARIOS}/rebalance_price.py"
MEASURES = "lab/steps/measures.py"
KNOWN_AS = "a figure is of what its name says"
TEST_PRICES = ("tests/lab/test_lab_measured_prices.py",)
TEST_MEASURED = ("tests/lab/test_lab_measured.py",)
TEST_FIGURES = ("tests/lab/test_lab_figures.py",)

PRICES: tuple[Mutation, ...] = (
    one(
        "bytes on disks are those of one copy, so many times",
        KNOWN_AS,
        COPIES,
        "    log, disks = ends_of(run, after), sum(after.values())\n",
        "    log, disks = ends_of(run, after), max(after.values()) * len(after)\n",
        tests=TEST_PRICES,
    ),
    one(
        "bytes between brokers are told twice",
        KNOWN_AS,
        COPIES,
        "else self.between / max(1, self.log)",
        "else 2 * self.between / max(1, self.log)",
        tests=TEST_PRICES,
    ),
    one(
        "bytes on disks are told twice",
        KNOWN_AS,
        COPIES,
        "return self.disks / max(1, self.log)",
        "return 2 * self.disks / max(1, self.log)",
        tests=TEST_PRICES,
    ),
    one(
        "a client is measured before it flows",
        "a first look for leaders is no price of copies",
        COPIES,
        "    run.must_flow(worker)  # a client that has just begun looks for its leaders first\n",
        "",
        tests=TEST_PRICES,
    ),
    one(
        "copies are only taken away",
        "each number of them is measured early and late",
        COPIES,
        '{"down": copies, "up": copies[::-1]}',
        '{"down": copies}',
        tests=TEST_PRICES,
    ),
    one(
        "megabytes of a size are ten times as many",
        KNOWN_AS,
        SIZES,
        "return size * rate / 1e6",
        "return size * rate / 1e5",
        tests=TEST_PRICES,
    ),
    one(
        "megabytes of a side are ten times as many",
        KNOWN_AS,
        f"{SCENARIOS}/throughput.py",
        "rate * SIZE / 1e6",
        "rate * SIZE / 1e5",
        tests=TEST_PRICES,
    ),
    one(
        "pauses outside of a redeploy count to it",
        KNOWN_AS,
        GROUPS,
        " and later >= begin_ms and earlier <= end_ms",
        "",
        tests=TEST_PRICES,
    ),
    one(
        "pauses that were over before a redeploy count to it",
        KNOWN_AS,
        GROUPS,
        " and later >= begin_ms",
        "",
        tests=TEST_PRICES,
    ),
    one(
        "pauses together are the longest one",
        KNOWN_AS,
        GROUPS,
        "max(found, default=0.0), sum(found), given_up",
        "max(found, default=0.0), max(found, default=0.0), given_up",
        tests=TEST_PRICES,
    ),
    one(
        "bytes from before a look count to it",
        KNOWN_AS,
        f"{SCENARIOS}/nearest_replica.py",
        "node: count - before.get(node, 0) for",
        "node: count for",
        tests=TEST_PRICES,
    ),
    one(
        "bytes between brokers are those of one way",
        KNOWN_AS,
        MEASURES,
        "bytes_(?:received|sent)",
        "bytes_(?:received)",
        tests=TEST_MEASURED,
    ),
    one(
        "nodes are warm after one stretch",
        "a JVM gets faster for a long while",
        MEASURES,
        "return abs(one - other) < ALIKE * max(one, other)",
        "return True",
        tests=TEST_MEASURED,
    ),
    one(
        "what opens a gate counts to its spell",
        "a client's start is no price of an event",
        MEASURES,
        "        if isinstance(event, Send) and event.at_ms >= since_ms:\n",
        "        if isinstance(event, Send):\n",
        tests=TEST_MEASURED,
    ),
    one(
        "a stretch begins before its client has",
        "a client's start is no price of an event",
        MEASURES,
        '    run.wait(f"{name} to have begun", lambda: _answers(worker) >= first, READY_S)\n',
        "",
        tests=TEST_MEASURED,
    ),
    one(
        "a line runs through a stretch without a value",
        "a curve shows no figure that nobody knows",
        "lab/report/curves.py",
        "[None if one is None else (drawing.x(one.x), y(one.y)) for one in series.spots]",
        "[(drawing.x(one.x), y(one.y)) for one in series.known]",
        tests=("tests/lab/test_lab_report_curves.py",),
    ),
    one(
        "one stretch's figure is the mean of both",
        "a curve shows no figure that nobody knows",
        MEASURES,
        "    if not known or len(known) < len(measured):\n        return None\n",
        "    if not known:\n        return None\n",
        tests=TEST_PRICES,
    ),
    one(
        "what was never read is in no percentile",
        "who waits in vain is counted",
        f"{SCENARIOS}/arrival_times.py",
        "            waited[name].append(max(0.0, last_ms - at_ms))\n",
        "            pass\n",
        tests=TEST_MEASURED,
    ),
    one(
        "the mildest states of a row are drawn last",
        "no trouble hides behind what is well",
        "lab/report/drawing.py",
        "key=_rank, reverse=True):",
        "key=_rank):",
        tests=("tests/lab/test_lab_report_hour.py",),
    ),
    one(
        "a percentile says less than was waited",
        "who waits in vain is counted",
        MEASURES,
        "[*done, *[inf] * len(at_least)]",
        "sorted([*done, *at_least])",
        tests=TEST_FIGURES,
    ),
    one(
        "who has no answer is left out of latencies",
        "who waits in vain is counted",
        "lab/steps/controllers.py",
        "            elif ends:\n",
        "            elif ends and each.gave_up_ms is not None:\n",
        tests=("tests/lab/test_lab_controllers.py",),
    ),
    one(
        "curves have straight axes over all decades",
        "a curve shows each value in its place",
        "lab/report/curves.py",
        "logarithmic=low > 0 and high / low > LOGARITHMIC_FROM",
        "logarithmic=False",
        tests=("tests/lab/test_lab_report_curves.py",),
    ),
    one(
        "states that share a shape look like the mildest of them",
        "no trouble hides behind what is well",
        "lab/report/drawing.py",
        "            kind = min((each.kind for each in group), key=_rank)\n",
        "            kind = max((each.kind for each in group), key=_rank)\n",
        tests=("tests/lab/test_lab_report_hour.py",),
    ),
    one(
        "of narrow states the last one is drawn",
        "a shape says how many states it holds",
        "lab/report/drawing.py",
        "                    group.append(state)\n",
        "                    group = [state]\n",
        tests=("tests/lab/test_lab_report_hour.py",),
    ),
)
