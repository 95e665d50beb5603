"""The demo's producer: the lab's verifiable producer, with payments or the lines of a file to send.

`python -m holdfast.lab.demo.source --help`. A process of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from holdfast.clients.verifiable_producer import Record, make_parser, options_of, run
from holdfast.lab.demo.events import line_record, payment_record
from holdfast.lab.demo.user_file import Line, read


def payments(count: int, *, seed: int, accounts: int, partitions: int) -> Iterator[Record]:
    for number in range(count):
        yield payment_record(number, seed=seed, accounts=accounts, partitions=partitions)


def lines(path: Path, key: str | None, partitions: int) -> Iterator[Record]:
    for line in read(path, key):
        if isinstance(line, Line):
            yield line_record(line.number, line.text, line.key, partitions=partitions)


def main(arguments: list[str]) -> int:
    parser = make_parser("demo.source")
    add = parser.add_argument
    add("--seed", type=int, default=0)
    add("--accounts", type=int, default=20)
    add("--input", type=Path, help="a file of lines, instead of payments")
    add("--key", help="field of a line that becomes the key")
    found = parser.parse_args(arguments)
    options = options_of(found)
    if found.input is not None:
        return run(options, lines(found.input, found.key, options.partitions))
    made = payments(
        options.messages, seed=found.seed, accounts=found.accounts, partitions=options.partitions
    )
    return run(options, made)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
