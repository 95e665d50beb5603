"""The demo's producer: the lab's verifiable producer, with payments or the lines of a file to send.

`python -m holdfast.lab.demo.event_source --help`. A process of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.clients.workload.verifiable_producer import make_parser, options_of, run
from holdfast.lab.demo.events import line_record, payment_record
from holdfast.lab.demo.user_file import Line, read


def main(arguments: list[str]) -> int:
    parser = make_parser("demo.source")
    add = parser.add_argument
    add("--seed", type=int, default=0)
    add("--accounts", type=int, default=20)
    add("--input", type=Path, help="a file of lines, instead of payments")
    add("--key", help="field of a line that becomes the key")
    found = parser.parse_args(arguments)
    options = options_of(found)
    partitions = options.partitions
    if found.input is not None:
        lines = (line for line in read(found.input, found.key) if isinstance(line, Line))
        made = (
            line_record(each.number, each.text, each.key, partitions=partitions) for each in lines
        )
    else:
        settings = {"seed": found.seed, "accounts": found.accounts, "partitions": partitions}
        made = (payment_record(number, **settings) for number in range(options.messages))
    return run(options, made)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
