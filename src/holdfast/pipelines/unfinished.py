"""What to do about a checkpoint whose making was killed, which Spark refuses at every start.

A driver that dies while the first entry of the offset log is written leaves a part of it, a hidden
file in `offsets`, and Spark wants that folder to be empty or to have a whole entry. Owns the words.
It deletes nothing: a location that was mistyped may be somebody else's.
"""

from __future__ import annotations

from holdfast.pipelines.due import Memory
from holdfast.pipelines.planned import Checkpoint, PlanError

# Spark's, of a checkpoint whose offset log has no whole entry, but something else is there.
REFUSED = "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"


def is_unfinished(said: str) -> bool:
    """Whether Spark's words are that refusal."""
    return REFUSED in said


def remedy(path: str, checkpoint: Checkpoint, memory: Memory | None) -> tuple[bool, str]:
    """Say whether it may be removed, by what the tables remember, and what to do. None: nothing.

    Without an entry no batch of it has ever run. If the tables have one all the same, the entries
    were there and are lost.
    """
    last = None if memory is None else memory.last
    if last is not None and last.batch is not None and last.checkpoint == _id(checkpoint):
        return False, (
            f"{path}: Spark finds no whole entry in its folder offsets, but the tables have batch "
            f"{last.batch} of this checkpoint: the entries were lost. Restore the folder from a "
            "copy. A query without state may go on with a fresh checkpoint instead; one with "
            f"state needs empty tables, and --begin-anew {last.checkpoint}"
        )
    return True, (
        f"{path}: a driver was killed while it made this checkpoint, and Spark does not go on with "
        "what there is. No batch of it has run and the tables have nothing from it: remove the "
        "folder, and start the driver again"
    )


def _id(checkpoint: Checkpoint) -> str | None:
    try:
        return checkpoint.id()
    except PlanError:
        return None
