from holdfast.wire.walker.python_columns import Place, Room, RunPlace
from holdfast.wire.walker.python_walker import Buffer

def decode(
    body: Buffer,
    place: Place,
    numbers: tuple[int, int, int, int, int, int, int, int],
    rooms: tuple[Room, ...],
    filled: tuple[int, ...],
    /,
) -> tuple[int, ...]: ...
def decode_run(
    data: Buffer,
    place: RunPlace,
    until: int,
    window: tuple[int, int, int],
    rooms: tuple[Room, ...],
    filled: tuple[int, ...],
    /,
) -> tuple[int, ...]: ...
