"""stub"""

from collections.abc import Callable

from holdfast.wire.schema import Message


def compile_encoder(cls: type[Message], version: int) -> Callable[..., None]:
    """Compile."""
    raise AssertionError
