"""What a client of librdkafka is made of: settings, secrets, and words for what it refuses.

Secrets are resolved in the process that opens the connection and at the moment it does. What has
them in it is handed to the client, and never logged, kept or pickled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from holdfast.pipelines.intake.client_options import RENAMED, SECRETS, TEXTS, USUAL
from holdfast.pipelines.intake.option_values import OptionError, nearest
from holdfast.pipelines.intake.secret_references import REFERENCES, resolved

Client = tuple[tuple[str, str], ...]  # librdkafka's properties, secrets as references
GROUP_ID = "holdfast-reader"  # the client demands a name even from those that join no group

# Bounded, whatever the log holds: librdkafka's default of 64 MB a partition is a lot for a worker.
_DEFAULTS = {
    "check.crcs": "true",  # as Java's client; librdkafka's default takes damaged records for sound
    "queued.max.messages.kbytes": "16384",
    "fetch.wait.max.ms": "100",
    "fetch.error.backoff.ms": "100",
    # By default librdkafka looks a second later whether a full queue was drained; a worker drains
    # it in a tenth of that and then waits.
    "fetch.queue.backoff.ms": "2",
    "reconnect.backoff.max.ms": "1000",
    "topic.metadata.refresh.interval.ms": "30000",
    "group.id": GROUP_ID,
}
# Never the user's to say: `client_options` refuses them.
_DECIDED = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
}
# Settings that only consumers have; an admin client warns about them.
_CONSUMER_ONLY = frozenset(
    {
        *(_DECIDED.keys() - {"allow.auto.create.topics"}),
        "check.crcs",
        "group.id",
        "isolation.level",
        "max.partition.fetch.bytes",
        "queued.max.messages.kbytes",
        "queued.min.messages",
    }
)
_FETCHING = "fetch."
_MESSAGE_LEAST, _MESSAGE_USUAL = 1_000, 1_000_000  # of librdkafka's message.max.bytes
_UNKNOWN = re.compile(r'No such configuration property: "([^"]*)"')
_NAMED = {own: java for java, own in RENAMED.items()}


def connection_settings(client: Client) -> dict[str, str]:
    """Return the properties with every secret in its place. OptionError: one can't be had."""
    return {
        name: _resolved(name, value) if name in SECRETS | TEXTS else value for name, value in client
    }


def _resolved(name: str, value: str) -> str:
    """Return what a reference means; what is none is a public text, and stays."""
    if not value.startswith(REFERENCES):
        assert name in TEXTS, f"{name} is written out"
        return value
    return resolved(f"kafka.{_NAMED.get(name, name)}", value)


def consumer_settings(client: Client) -> dict[str, Any]:
    """Return librdkafka's settings for a reader that never commits and never resets."""
    return {**_DEFAULTS, **_small_fetches(client), **connection_settings(client), **_DECIDED}


def _small_fetches(client: Client) -> dict[str, str]:
    """Return what librdkafka needs to take a small `fetch.max.bytes`, which Java takes as it is.

    It wants the size of a producer's messages to be no larger, also where nothing is produced.
    """
    asked = dict(client).get("fetch.max.bytes", "")
    if not asked.isdecimal():
        return {}
    return {"message.max.bytes": str(min(max(int(asked), _MESSAGE_LEAST), _MESSAGE_USUAL))}


def admin_settings(client: Client) -> dict[str, Any]:
    """Return an admin client's settings for what a reader is given."""
    return {
        name: value
        for name, value in consumer_settings(client).items()
        if name not in _CONSUMER_ONLY and not name.startswith(_FETCHING)
    }


def open_consumer(client: Client, **callbacks: Any) -> Any:
    """Return a consumer of these properties. OptionError: the client refuses one of them."""
    settings = consumer_settings(client)
    try:
        return Consumer({**settings, **callbacks})
    except KafkaException as error:
        raise _refused(error, settings) from None  # whose text may quote a secret


def open_admin(client: Client) -> AdminClient:
    """Return an admin client of these properties. OptionError as with `open_consumer`."""
    settings = admin_settings(client)
    try:
        return AdminClient(settings)
    except KafkaException as error:
        raise _refused(error, settings) from None


def check(client: Client) -> None:
    """Have librdkafka look at names and values; nobody is connected to. OptionError as above."""
    open_consumer(
        tuple((name, value) for name, value in client if name != "bootstrap.servers")
    ).close()


def _refused(error: KafkaException, settings: dict[str, Any]) -> OptionError:
    said = _without_secrets(error.args[0].str(), settings)
    found = _UNKNOWN.search(said)
    if found is None:
        for own, java in _NAMED.items():
            if f'"{own}"' in said:
                said += f" (Java's name is {java})"
        return OptionError(f"kafka.*: the client refuses its options: {said}")
    meant = nearest(found[1], {name: name for name in USUAL})
    return OptionError(
        f"kafka.{found[1]}: neither librdkafka nor Java's client has it"
        + (f"; the nearest that is known is kafka.{meant}" if meant else "")
    )


def _without_secrets(text: str, settings: dict[str, Any]) -> str:
    for secret in _secrets(settings):
        text = text.replace(secret, "***")
    return text


def _secrets(settings: dict[str, Any]) -> Iterable[str]:
    return (settings[name] for name in SECRETS & settings.keys())
