"""CRC-32C, without the cost of importing the package that brings it.

The package reads its own version and sets up a command line when it is imported, some 30 ms of a
node's start. Only its compiled module is wanted, so only that is loaded; the ordinary import
stands behind it, in case the package is laid out otherwise one day.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

_Checksum = Callable[..., int]


def _load() -> _Checksum:
    package = PathFinder.find_spec("crc32c")
    locations = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("crc32c._crc32c", locations) if locations else None
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        compiled: _Checksum | None = getattr(module, "crc32c", None)
        if compiled is not None:
            return compiled
    from crc32c import crc32c as ordinary  # noqa: PLC0415 - the costly way, only if need be

    return ordinary


crc32c: _Checksum = _load()
"""`crc32c(data, value=0)`: the checksum of a buffer, or of one more part of it."""
