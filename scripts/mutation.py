"""What a bug put in on purpose is: where it goes, and what has to find it."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement in one file, whose path counts from src/holdfast."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutation:
    """One bug, and what it is known as elsewhere."""

    name: str
    known_as: str
    edits: tuple[Edit, ...]
    # Node ids of pytest, one of which has to fail with it in. Without any the simulator has to find
    # it. Named for what the simulator does not run, and where the moment is too short for random
    # faults to meet it soon.
    tests: tuple[str, ...] = ()
    # The plans in which the simulator has to find it, if not those that are asked for.
    scale: str = ""

    @property
    def key(self) -> str:
        """Names the mutation in a file of results: another text or test is another mutation."""
        return blake2b(repr((self.edits, self.tests)).encode(), digest_size=6).hexdigest()


def one(
    name: str, known_as: str, file: str, old: str, new: str, *, tests: tuple[str, ...] = ()
) -> Mutation:
    """Return a mutation of one place."""
    return Mutation(name, known_as, (Edit(file, old, new),), tests)
