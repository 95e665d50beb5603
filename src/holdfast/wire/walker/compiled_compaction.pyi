from holdfast.wire.walker.python_compaction import Place
from holdfast.wire.walker.python_walker import Buffer

class KeyMap:
    limit: int

    def __init__(self, memory_bytes: int, secret: bytes) -> None: ...
    def __len__(self) -> int: ...
    def put(self, key: Buffer, offset: int, /) -> bool: ...
    def get(self, key: Buffer, /) -> int: ...

def enter(
    body: Buffer,
    place: Place,
    most: int,
    steps: int,
    numbers: tuple[int, int, int],
    key_map: KeyMap | None,
    /,
) -> tuple[int, ...]: ...
def keep(
    body: Buffer,
    place: Place,
    most: int,
    steps: int,
    numbers: tuple[int, int, int, int, int, int],
    key_map: KeyMap,
    room: bytearray | memoryview,
    filled: int,
    /,
) -> tuple[int, ...]: ...
def hash_key(secret: bytes, key: Buffer, /) -> tuple[int, int]: ...
