"""stub"""

from collections.abc import Callable
from typing import Any

from holdfast.wire.schema import Message


def compile_decoder(cls: type[Message], version: int) -> Callable[..., Any]:
    """Compile."""
    raise AssertionError
