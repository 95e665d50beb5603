"""The figures that a node tells of itself, read when somebody asks for them.

Owns who says which: a number, or words. What the names mean stands in `config.figures`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from holdfast.config.describe import ConfigEntry, ConfigSource
from holdfast.config.figures import FIGURES
from holdfast.config.key import ConfigType


class Figures:
    """Of one node, whatever its roles."""

    def __init__(self) -> None:
        self._told: dict[str, Callable[[], int | str]] = {}

    def tell(self, name: str, read: Callable[[], int | str]) -> None:
        """Answer with `read` whoever asks for this figure."""
        assert name in FIGURES, f"{name} is documented nowhere"
        self._told[name] = read

    def entries(self, names: Collection[str] | None) -> list[ConfigEntry]:
        """Return the figures that are asked for by name, as DescribeConfigs shows them."""
        wanted = [name for name in dict.fromkeys(names or ()) if name in self._told]
        return [_entry(name, self._told[name]()) for name in wanted]


def _entry(name: str, value: int | str) -> ConfigEntry:
    return ConfigEntry(
        name=name,
        value=str(value),
        source=ConfigSource.UNKNOWN,
        type=ConfigType.LONG if isinstance(value, int) else ConfigType.STRING,
        read_only=True,
        sensitive=False,
        synonyms=(),
    )
