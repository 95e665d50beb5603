"""Runs kafka-python's own integration tests, unmodified, on a broker of ours.

What does not pass has its reason in reasons.toml. Any other makes the exit status 1, and so does a
reason of which nothing is left. `docs/reference/compatibility.md` has both.

    make kafka-python-tests [ARGS="--brokers 3 -k test_group"]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from compare import sides
from holdfast.cluster.local import LocalCluster
from kafka_python.outcomes import PASSED, Outcome, Reason, outcomes, reason_of, reasons
from kafka_python.package import UnavailableError, pin, unpacked

KAFKA_VERSION: Final = "4.3"  # which its tests are told that they have before them
# What its own broker is given for its tests, as far as they depend on it.
SETTINGS: Final = {
    "num.partitions": "4",
    "default.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "2",
}
OF_ONE: Final = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
# So that Apache Kafka can show that a test is right.
OF_THEIRS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


def main() -> int:
    """Run; 0: what does not pass is known, 1: not all of it is, 2: they can't be run."""
    parser = argparse.ArgumentParser(prog="kafka-python", description=__doc__.split("\n\n")[0])
    parser.add_argument("--brokers", type=int, default=1, help="brokers of ours (1)")
    parser.add_argument("--apache", action="store_true", help="on Apache Kafka in their place")
    parser.add_argument("--bootstrap", help="on a broker that runs: HOST:PORT")
    parser.add_argument("-k", dest="only", help="the tests that pytest's -k chooses")
    args = parser.parse_args()
    if args.apache and not sides.is_there():
        print("there is no Apache Kafka here: `make apache` brings it", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="kafka-python-") as directory:
        place = Path(directory)
        try:
            root = unpacked(place)
        except UnavailableError as error:
            print(f"kafka-python's source package can't be had:\n{error}", file=sys.stderr)
            return 2
        with _broker(place, args) as address:
            found = run(root, address, place / "outcomes.xml", args.only)
    if args.apache or args.bootstrap:
        show(found)
        return 0
    return report(found, reasons(args.brokers), whole=args.only is None)


@contextmanager
def _broker(place: Path, args: argparse.Namespace) -> Iterator[str]:
    """The cluster that was asked for; the address of one broker."""
    if args.bootstrap:
        yield args.bootstrap
    elif args.apache:
        with sides.theirs(place, SETTINGS | OF_ONE | OF_THEIRS) as address:
            yield address
    else:
        settings = SETTINGS | (OF_ONE if args.brokers == 1 else {})
        with LocalCluster.create(
            place / "holdfast", brokers=args.brokers, port=0, config=settings
        ) as cluster:
            cluster.start(timeout_s=sides.START_S)
            yield cluster.bootstrap_servers.partition(",")[0]


def run(root: Path, address: str, told: Path, only: str | None) -> list[Outcome]:
    """Run the tests there, in a process and a folder of their own."""
    environment: Mapping[str, str] = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "KAFKA_URI": f"kafka://{address}",
        "KAFKA_VERSION": KAFKA_VERSION,
        "KAFKA_ROOT": str(root),  # any folder: they only look whether it is there
        "PYTHONPATH": str(root),
    }
    choice = [] if only is None else ["-k", only]
    subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "test/integration", *choice, f"--junitxml={told}"),
            *("-p", "no:asyncio", "-p", "no:xdist", "-p", "no:cacheprovider"),
            *("-q", "--tb=short", "--show-capture=no"),
        ],
        cwd=root,
        env=environment,
        check=False,
    )
    return outcomes(told)


def show(found: list[Outcome]) -> None:
    """Print what each test came to."""
    for one in sorted(found):
        print(f"{one.came_to:8} {one.test}  {one.said}".rstrip())


def report(found: list[Outcome], known: list[Reason], *, whole: bool) -> int:
    """Print what does not pass, with what is known of it."""
    used, unknown = set(), []
    for one in sorted(found):
        if one.came_to == PASSED:
            continue
        reason = reason_of(one, known)
        if reason is None:
            unknown.append(one)
        else:
            used.add(reason)
            print(f"{one.came_to:8} {one.test}: {reason.why}")
    for one in unknown:
        print(f"{one.came_to:8} {one.test}: NOT KNOWN: {one.said}")
    must = [reason for reason in known if whole and not reason.is_of_several]
    unused = [reason for reason in must if reason not in used]
    for reason in unused:
        print(f"reasons.toml says of {reason.tests} that it is {reason.came_to}: nothing is")
    counts = Counter(one.came_to for one in found)
    said = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    print(f"kafka-python {pin()[0]}: {len(found)} tests, {said}; {len(unknown)} without a reason")
    return 1 if unknown or unused or not counts[PASSED] else 0


if __name__ == "__main__":
    sys.exit(main())
