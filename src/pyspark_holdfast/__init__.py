"""What Spark discovers by name: `format("holdfast")` without registration.

Spark looks for top-level modules called `pyspark_*` that expose `DefaultSource`. Of one that can't
be imported it only says that there is no such source; so what is missing is said by the source.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from holdfast.pipelines.source import HoldfastSource as DefaultSource
else:
    try:
        from holdfast.pipelines.source import HoldfastSource as DefaultSource
    except ImportError as failure:
        import pyspark
        from pyspark.sql.datasource import DataSource

        WHY = (
            f'format("holdfast") does not load in {sys.executable}, with PySpark '
            f"{pyspark.__version__}: {failure}. It needs PySpark 4.2 or newer, and what the extras "
            "bring: pip install 'holdfast[spark]', or 'holdfast[executor]' where Spark is already"
        )

        class DefaultSource(DataSource):
            """Stands for the source where that can't be loaded, and says why."""

            def __init__(self, options: Any) -> None:
                super().__init__(options)

            @classmethod
            def name(cls) -> str:
                return "holdfast"

            def schema(self) -> NoReturn:
                raise ImportError(WHY)


__all__ = ["DefaultSource"]
