from holdfast.wire.walker.python_walker import Buffer

def walk(
    body: Buffer, position: int, index: int, most: int, base_timestamp: int, /
) -> tuple[int, ...]: ...
def seek(
    body: Buffer,
    position: int,
    most: int,
    base_timestamp: int,
    since: int,
    deltas: tuple[int, int],
    /,
) -> tuple[int, ...]: ...
