"""What the wire tests share: messages made from our own tables, at random but repeatably.

A seeded generator rather than hypothesis strategies: some 250 message versions against two
oracles each would take minutes to draw, and a message that fails prints itself.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from holdfast.wire.schema import Message
from random_messages import make_struct

with warnings.catch_warnings():
    # kafka-python reads its schemas by a function that Python 3.11 deprecates, when imported.
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
    importlib.import_module("kafka")

EXAMPLES = 12
Messages = Callable[[type[Message], int], Iterator[Any]]


def make_messages(cls: type[Message], version: int) -> Iterator[Any]:
    """Yield a message of defaults, then random ones; the same in every run."""
    random = Random(f"{cls.__name__} {version}")
    yield cls()
    for _ in range(EXAMPLES):
        yield make_struct(random, cls, version)


@pytest.fixture(scope="session")
def messages_of() -> Messages:
    """Give tests the messages of a class in one version."""
    return make_messages
