from holdfast.wire.walker.python_walker import Buffer, Place

def walk(
    body: Buffer, place: Place, most: int, steps: int, base_timestamp: int, /
) -> tuple[int, ...]: ...
def seek(
    body: Buffer,
    place: Place,
    most: int,
    steps: int,
    base_timestamp: int,
    wanted: tuple[int, int, int],
    /,
) -> tuple[int, ...]: ...
