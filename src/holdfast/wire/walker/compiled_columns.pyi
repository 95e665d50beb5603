from holdfast.wire.walker.python_columns import Place, Room
from holdfast.wire.walker.python_walker import Buffer

def decode(
    body: Buffer,
    place: Place,
    numbers: tuple[int, int, int, int, int, int, int, int],
    rooms: tuple[Room, ...],
    filled: tuple[int, ...],
    /,
) -> tuple[int, ...]: ...
