"""How what was started is ended: all of it, and nothing takes the place of what has ended it.

Owns the order of what ends a run, and whether a person has interrupted it: a clean-up that fails
must not pass for the reason, or whoever runs the next thing goes on after Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


def end_all(ends: Iterable[Callable[[], object]], reason: BaseException | None = None) -> None:
    """Do all of these, whatever one of them raises; then raise that, if there was no reason.

    `reason`: the error that ends it all, which its caller raises on; what fails behind it is added
    to its notes. Only an interrupt weighs more than another error, whichever comes first.
    """
    raised = reason
    for end in ends:
        try:
            end()
        except BaseException as error:  # noqa: BLE001 - it is raised again, or noted
            if raised is None or (isinstance(raised, Exception) and _is_interrupt(error)):
                raised = error
            else:
                raised.add_note(f"Behind it: {error!r}")
    if raised is not None and raised is not reason:
        raise raised


def _is_interrupt(error: BaseException) -> bool:
    return not isinstance(error, Exception)


class Interrupt:
    """Whether the command was interrupted. The exception that says so may be lost on its way.

    One a process, as its signals are. What sets it is a signal's handler, so there is no lock.
    """

    came = False

    @classmethod
    def refuse(cls) -> None:
        """KeyboardInterrupt: one came, so nothing more is begun."""
        if cls.came:
            raise KeyboardInterrupt
