"""The `holdfast` command. Each one is thin: it parses options, calls what does the work, prints.

Never imports `core`, `log` or `node`; nodes are processes of their own.
"""

from __future__ import annotations

import atexit
import sys

from holdfast.cli.exit_status import InterruptedCommandError


def main() -> None:
    """Run the command line and exit with its status."""
    try:
        _end_undisturbed()
        status = run(sys.argv[1:])
    except KeyboardInterrupt:  # while modules were loading
        error = InterruptedCommandError()
        print(error, file=sys.stderr)
        status = error.code
    finally:
        # An interrupt that came amid text that was executed, as dataclasses and named tuples are
        # made, is kept by the interpreter, which ends itself by SIGINT in place of our status,
        # whoever took the interrupt. The next text that is executed has it forgotten.
        exec("")  # noqa: S102 - nothing is in it
    sys.exit(status)


def _end_undisturbed() -> None:
    """Have an interrupt passed over once all is over: an interpreter that ends is ended by it.

    What is registered first is called last, so whatever is waited for can be interrupted still.
    """
    import signal  # noqa: PLC0415 - it loads modules, and that is to be interrupted in `main`

    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit status. Expected failures become a line on stderr."""
    from holdfast.cli import command_table as table  # noqa: PLC0415 - `import holdfast.cli` stays cheap

    return table.run(arguments)
