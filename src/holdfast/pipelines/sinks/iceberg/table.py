"""An Iceberg table as a query's rows need it: its columns, and no rule that files would break.

Files are added to it as they are. What a table asks of a writer beyond its columns (partitions,
other folders, a branch that is looked at first) would not be kept, so such a table is refused. Must
never change a table; `store` adds the columns that were asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from holdfast.pipelines.sinks.iceberg.catalog import location
from holdfast.pipelines.sinks.iceberg.synced_files import SyncedFiles
from holdfast.pipelines.sinks.target import TargetError, columns_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table
    from pyspark.sql.types import DataType, StructType

MADE_WITH: Final = {
    # With each commit a file of all metadata is written; the last hundred stay.
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    # And one that names its data files: a hundred of those become one, or each scan opens them all.
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
}
"""Properties of a table that is made. Its owner may change them."""

_RULES: Final = {
    TableProperties.WRITE_DATA_PATH: None,
    TableProperties.WRITE_METADATA_PATH: None,
    TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL: None,
    TableProperties.OBJECT_STORE_ENABLED: "false",
    TableProperties.WRITE_FILE_FORMAT: "parquet",
    "write.folder-storage.path": None,
    "write.location-provider.impl": None,
    "write.wap.enabled": "false",
    "py-io-impl": None,
}
"""What a table may not ask of a writer, but for the value that asks nothing."""


class Columns:
    """The query's columns, as Iceberg knows them. Optional in a table that is made."""

    def __init__(self, schema: StructType) -> None:
        """TargetError: a column that no table, or no Iceberg table, can hold."""
        columns_of(schema)
        for name in schema.names:
            if not name or "." in name:
                raise TargetError(
                    f"column {name!r}: to readers of Iceberg a dot leads into a column; give it a "
                    "name without one"
                )
        names = [name.lower() for name in schema.names]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise TargetError(f"column {twice[0]!r} is there twice: to Spark, A and a are one name")
        self.may_be_null = {field.name: bool(field.nullable) for field in schema.fields}
        self.types = {field.name: _type_of(field.dataType) for field in schema.fields}

    @property
    def schema(self) -> Schema:
        fields = [
            NestedField(number, name, kind, required=False)
            for number, (name, kind) in enumerate(self.types.items(), 1)
        ]
        return Schema(*fields)

    def arrow(self, table: Table) -> pa.Schema:
        """The columns as they are in a file, with the table's ids: moments in UTC.

        A comment on one is none of a file's business, and may change while a query runs.
        TargetError: the table has not all of them, or other ones.
        """
        refuse_misfit(table, self)
        there = {f.name: f.model_copy(update={"doc": None}) for f in table.schema().fields}
        return schema_to_pyarrow(Schema(*(there[name] for name in self.types)))


def _type_of(kind: DataType) -> PrimitiveType:
    from pyspark.sql import types as spark  # noqa: PLC0415 - as in `target`

    if isinstance(kind, spark.DecimalType):
        return DecimalType(kind.precision, kind.scale)
    simple: dict[type[DataType], PrimitiveType] = {
        spark.BooleanType: BooleanType(),
        spark.ByteType: IntegerType(),
        spark.ShortType: IntegerType(),
        spark.IntegerType: IntegerType(),
        spark.LongType: LongType(),
        spark.FloatType: FloatType(),
        spark.DoubleType: DoubleType(),
        spark.StringType: StringType(),
        spark.BinaryType: BinaryType(),
        spark.DateType: DateType(),
        spark.TimestampType: TimestamptzType(),
        spark.TimestampNTZType: TimestampType(),
    }
    return next(found for known, found in simple.items() if isinstance(kind, known))


def refuse_misfit(table: Table, columns: Columns, *, adds: bool = False) -> list[str]:
    """Return the columns that the table lacks. TargetError: rows of the query don't fit into it."""
    _refuse_rules(table)
    name = ".".join(table.name())
    there = {field.name: field for field in table.schema().fields}
    by_lower = {field.lower(): field for field in there}
    missing = []
    for wanted, kind in columns.types.items():
        found = there.get(wanted)
        if found is None and wanted.lower() in by_lower:
            raise TargetError(
                f"table {name}: its column {by_lower[wanted.lower()]!r} is spelt otherwise than "
                f"the query's {wanted!r}, and to Spark both are one name; spell them alike"
            )
        if found is None:
            missing.append(wanted)
        elif found.field_type != kind:
            raise TargetError(
                f"table {name}: its column {wanted!r} is {found.field_type}, and the query's is "
                f"{kind}; cast it in the query"
            )
        elif columns.may_be_null[wanted] and found.required:
            raise TargetError(
                f"table {name}: its column {wanted!r} must not be null, and the query's may be; "
                "say so in the query (coalesce), or let the table have nulls"
            )
    if missing and not adds:
        raise TargetError(
            f"table {name} has no column {missing[0]!r}, and the query has; add it to the table, "
            'leave it out of the query, or let it be added (schema_changes="add")'
        )
    for field in there.values():
        if field.name not in columns.types and field.required:
            raise TargetError(
                f"table {name}: its column {field.name!r} must not be null, and the query has no "
                "such column; add it to the query, or let the table have nulls"
            )
    return missing


def _refuse_rules(table: Table) -> None:
    """Refuse a table that asks of its files what nobody looks after here."""
    found = [f"it is partitioned ({field.name})" for field in table.spec().fields]
    if table.metadata.format_version > 2:
        found.append(f"it has format {table.metadata.format_version}, and 2 is what is built")
    found += [
        f"{key}={table.properties[key]}"
        for key, harmless in _RULES.items()
        if table.properties.get(key, harmless) != harmless
    ]
    if not isinstance(table.io, SyncedFiles):
        found.append("its files are written by other code than ours")
    name = ".".join(table.name())
    if found:
        raise TargetError(
            f"table {name}: what it asks of a writer is not kept up here ({', '.join(found)}); "
            "write to a table without it"
        )
    if not table.location().startswith(("file:/", "/")):
        raise TargetError(
            f"table {name}: it lies in {table.location()}, and only folders are built, which every "
            "executor has under the same name"
        )
    location(table.location())
