"""What both ways of reading a range share: how to reach the log, what a row is, what can be wrong.

Owns no connection.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from holdfast.pipelines.intake import headers
from holdfast.pipelines.offsets import DataLossError, Partition
from holdfast.pipelines.options import FETCH_BYTES
from holdfast.wire.errors import RETRIABLE, ErrorCode

# What Spark makes of the seven columns' types; it compares the schemas of the first batch exactly.
ARROW_SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
HEADERS_FIELD: Final = pa.field("headers", headers.ARROW_TYPE)
ARROW_SCHEMA_WITH_HEADERS: Final = ARROW_SCHEMA.append(HEADERS_FIELD)
# What may pass although no client is told to try again.
PASSING: Final = RETRIABLE | {ErrorCode.UNKNOWN_SERVER_ERROR}
log = logging.getLogger(__name__)


class ReadError(RuntimeError):
    """A range could not be read whole in time, or the cluster refuses it."""


class Plan(NamedTuple):
    """What is known of the log since a range of it was planned.

    Each end could be read of the leader of an epoch (-1: not known). Who leads in an older one was
    cut off and tells of a log of before; only who leads in a newer one can have another log.
    """

    topic_id: str | None = None
    start_epoch: int = -1
    end_epoch: int = -1


UNPLANNED: Final = Plan()


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to reach the log. Hashable: it is the key under which a consumer is kept."""

    client: tuple[tuple[str, str], ...]
    fail_on_data_loss: bool = True
    resets: bool = False  # goneData: what is gone is passed over, but for a log that was cut
    silence_ms_max: int = 120_000  # how long to wait for the next record before giving up
    headers: bool = False  # an eighth column
    fetch_bytes: int = FETCH_BYTES  # what is asked for at once (maxBytesPerFetch)

    @property
    def schema(self) -> pa.Schema:
        return ARROW_SCHEMA_WITH_HEADERS if self.headers else ARROW_SCHEMA

    def lost(self, partition: Partition, said: str) -> None:
        """Fail with what is gone, or note it, as `fail_on_data_loss` says."""
        text = f"{partition}: {said}"
        if self.fail_on_data_loss:
            raise DataLossError(data_loss_text([text]))
        log.warning("going on without data that was lost: %s", text)

    @property
    def fails_on_cut(self) -> bool:
        """Whether a log that lost what was read ends the query. `reset` does not go back in it."""
        return self.fail_on_data_loss or self.resets

    def cut(self, partition: Partition, said: str) -> None:
        """Fail with a log that lost what was read or planned, or note it."""
        if self.fails_on_cut:
            raise DataLossError(data_loss_text([f"{partition}: {said}"]))
        self.lost(partition, said)

    def silent(self, partition: Partition, position: int, end: int, why: str = "") -> ReadError:
        """Return what is raised when nothing has come for too long."""
        return ReadError(
            f"{partition}: nothing came at offset {position} of a range that ends at {end}, "
            f"for {self.silence_ms_max} ms (kafkaConsumer.pollTimeoutMs)" + (why and f": {why}")
        )


def data_loss_text(said: list[str]) -> str:
    """Say what is gone, and which option decides about it."""
    return (
        "Some data was lost before it was read: "
        + "; ".join(said)
        + ". To go on without it, set the option goneData to skip, or failOnDataLoss to false."
    )
