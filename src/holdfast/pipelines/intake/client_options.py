"""The `kafka.*` options: Java's names and values in librdkafka's words. Pure.

Owns the tables: what is renamed, what is refused and why, what is secret. What stands in none of
them goes to librdkafka as it is, which knows its own names best (`connection` asks it). A secret is
never a value here: it is `env:NAME` or `file:PATH` until a connection is opened, and no message
shows what was given instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from holdfast.pipelines.intake.jaas import ENTRY, credentials
from holdfast.pipelines.intake.option_values import OptionError
from holdfast.pipelines.intake.secret_references import is_reference

# Java's name: librdkafka's. The values are the same but for what `_VALUES` says.
RENAMED: Final = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    # librdkafka has this name too, for what a producer waits for.
    "request.timeout.ms": "socket.timeout.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}
# Two names of librdkafka's own for one property: which of two values counts would be chance.
_ALSO: Final = {
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}
# Values that Java spells in another way: librdkafka's name, what is given, what is meant.
_VALUES: Final = {
    ("connections.max.idle.ms", "-1"): "0",
    ("socket.receive.buffer.bytes", "-1"): "0",
    ("socket.send.buffer.bytes", "-1"): "0",
    ("ssl.endpoint.identification.algorithm", ""): "none",
    ("ssl.endpoint.identification.algorithm", "HTTPS"): "https",
}

_CHECKPOINT = "offsets live in Spark's checkpoint"
_NO_GROUP = "no consumer group is joined, so it would have no effect; leave it out"
_JAVA = "it names a class or a part of Java's client, which is not used here; leave it out"
_JAVA_TLS = "TLS is OpenSSL's here, and it has no such setting; leave it out"
_PEM_ONLY = "give the certificates as PEM: kafka.ssl.truststore.type=PEM"
_WRITES = "it is a producer's, and this source only reads; leave it out"
_CODE = "code is not loaded because of an option"
_NO_PROPERTY = "it is a callback of the client's program, and no property"

REFUSED: Final = {
    # What the source decides itself.
    "enable.auto.commit": _CHECKPOINT,
    "auto.commit.enable": _CHECKPOINT,
    "enable.auto.offset.store": _CHECKPOINT,
    "offset.store.method": _CHECKPOINT,
    "auto.offset.reset": "use startingOffsets; a reset would skip records silently",
    "enable.partition.eof": "the source needs it to see the end of a partition",
    "allow.auto.create.topics": "a source that reads makes no topics",
    "metadata.broker.list": "use kafka.bootstrap.servers",
    "key.deserializer": "keys are bytes; use Spark's functions",
    "value.deserializer": "values are bytes; use Spark's functions",
    "max.poll.records": "how much is read at once is bounded by itself; for small batches use "
    "maxOffsetsPerTrigger, for small tasks maxRecordsPerPartition",
    "default.api.timeout.ms": "use kafkaConsumer.pollTimeoutMs, fetchOffset.numRetries and "
    "fetchOffset.retryIntervalMs",
    "exclude.internal.topics": "a pattern never matches internal topics; name one with subscribe",
    "socket.connection.setup.timeout.max.ms": "use kafka.socket.connection.setup.timeout.ms, which "
    "does not grow here",
    "config.providers": "a secret is given as env:NAME or file:PATH",
    # Group membership.
    "auto.commit.interval.ms": _NO_GROUP,
    "coordinator.query.interval.ms": _NO_GROUP,
    "group.instance.id": _NO_GROUP,
    "group.protocol": _NO_GROUP,
    "group.protocol.type": _NO_GROUP,
    "group.remote.assignor": _NO_GROUP,
    "heartbeat.interval.ms": _NO_GROUP,
    "internal.leave.group.on.close": _NO_GROUP,
    "max.poll.interval.ms": _NO_GROUP,
    "partition.assignment.strategy": _NO_GROUP,
    "session.timeout.ms": _NO_GROUP,
    # Java's classes.
    "auto.include.jmx.reporter": _JAVA,
    "interceptor.classes": "it is a class of the JVM client",
    "metric.reporters": _JAVA,
    "metrics.num.samples": _JAVA,
    "metrics.recording.level": _JAVA,
    "metrics.sample.window.ms": _JAVA,
    "sasl.client.callback.handler.class": _JAVA,
    "sasl.login.callback.handler.class": _JAVA,
    "sasl.login.class": _JAVA,
    "sasl.login.connect.timeout.ms": _JAVA,
    "sasl.login.read.timeout.ms": _JAVA,
    "sasl.login.refresh.buffer.seconds": _JAVA,
    "sasl.login.refresh.min.period.seconds": _JAVA,
    "sasl.login.refresh.window.factor": _JAVA,
    "sasl.login.refresh.window.jitter": _JAVA,
    "sasl.login.retry.backoff.max.ms": _JAVA,
    "sasl.login.retry.backoff.ms": _JAVA,
    **dict.fromkeys(
        ("sasl.oauthbearer.clock.skew.seconds", "sasl.oauthbearer.expected.audience",
         "sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.header.urlencode",
         "sasl.oauthbearer.jwks.endpoint.refresh.ms",
         "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
         "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "sasl.oauthbearer.jwks.endpoint.url",
         "sasl.oauthbearer.jwt.retriever.class", "sasl.oauthbearer.jwt.validator.class",
         "sasl.oauthbearer.scope.claim.name"),
        _JAVA,
    ),
    "sasl.kerberos.ticket.renew.jitter": "give the whole command: kafka.sasl.kerberos.kinit.cmd",
    "sasl.kerberos.ticket.renew.window.factor": "give the time: "
    "kafka.sasl.kerberos.min.time.before.relogin",
    "security.providers": _JAVA,
    # Stores and TLS.
    "ssl.enabled.protocols": _JAVA_TLS,
    "ssl.engine.factory.class": _JAVA,
    "ssl.keymanager.algorithm": _JAVA_TLS,
    "ssl.protocol": _JAVA_TLS,
    "ssl.provider": _JAVA_TLS,
    "ssl.secure.random.implementation": _JAVA_TLS,
    "ssl.trustmanager.algorithm": _JAVA_TLS,
    "ssl.truststore.password": f"certificates in PEM have no password; {_PEM_ONLY}",
    # What would run another's code in the process, or what a program alone can give.
    "plugin.library.paths": _CODE,
    "ssl.engine.location": _CODE,
    "ssl.providers": f"{_CODE}; OpenSSL's own configuration (OPENSSL_CONF) names its providers",
    "default.topic.config": _NO_PROPERTY,
    "logger": _NO_PROPERTY,
    "on_commit": _NO_PROPERTY,
    "opaque": _NO_PROPERTY,
    **dict.fromkeys(
        ("error_cb", "stats_cb", "log_cb", "oauth_cb", "throttle_cb", "rebalance_cb", "socket_cb",
         "connect_cb", "closesocket_cb", "open_cb", "resolve_cb", "consume_cb", "offset_commit_cb",
         "background_event_cb", "oauthbearer_token_refresh_cb", "ssl.certificate.verify_cb"),
        _NO_PROPERTY,
    ),
    **dict.fromkeys(
        ("acks", "batch.num.messages", "batch.size", "buffer.memory", "compression.codec",
         "compression.level", "compression.type", "delivery.timeout.ms", "enable.idempotence",
         "key.serializer", "linger.ms", "max.block.ms", "max.request.size", "message.timeout.ms",
         "partitioner", "partitioner.class", "request.required.acks", "retries",
         "queue.buffering.max.kbytes", "queue.buffering.max.messages", "queue.buffering.max.ms",
         "transaction.timeout.ms", "transactional.id", "value.serializer"),
        _WRITES,
    ),
}  # fmt: skip

# In librdkafka's words. Their values have to be references.
SECRETS: Final = frozenset(
    {
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
    }
)
_LOGIN: Final = re.compile(r"://[^/?#@\s]*:[^/?#@\s]*@")  # of an address
# Public, but long: a file is what one has.
TEXTS: Final = frozenset({"https.ca.pem", "ssl.ca.pem", "ssl.certificate.pem"})

# What a reader may want to set, for saying what was meant; librdkafka itself knows more.
USUAL: Final = (
    "bootstrap.servers", "broker.address.family", "check.crcs", "client.dns.lookup", "client.id",
    "client.rack", "connections.max.idle.ms", "debug", "enable.metrics.push",
    "enable.ssl.certificate.verification", "fetch.error.backoff.ms", "fetch.max.bytes",
    "fetch.message.max.bytes", "fetch.min.bytes", "fetch.queue.backoff.ms", "fetch.wait.max.ms",
    "group.id", "isolation.level", "log_level", "max.partition.fetch.bytes",
    "metadata.max.age.ms", "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy", "queued.max.messages.kbytes", "queued.min.messages",
    "receive.message.max.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms",
    "retry.backoff.max.ms", "retry.backoff.ms", "sasl.jaas.config", "sasl.kerberos.keytab",
    "sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin", "sasl.kerberos.principal",
    "sasl.kerberos.service.name", "sasl.mechanism", "sasl.mechanisms",
    "sasl.oauthbearer.client.id", "sasl.oauthbearer.config", "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.method", "sasl.oauthbearer.scope", "sasl.oauthbearer.token.endpoint.url",
    "sasl.username", "security.protocol", "socket.connection.setup.timeout.ms",
    "socket.keepalive.enable", "socket.max.fails", "socket.nagle.disable",
    "socket.receive.buffer.bytes", "socket.send.buffer.bytes", "socket.timeout.ms",
    "ssl.ca.location", "ssl.certificate.location", "ssl.cipher.suites", "ssl.crl.location",
    "ssl.curves.list", "ssl.endpoint.identification.algorithm", "ssl.key.location",
    "ssl.keystore.location", "ssl.keystore.type", "ssl.sigalgs.list", "ssl.truststore.location",
    "ssl.truststore.type", "statistics.interval.ms", "topic.metadata.refresh.interval.ms",
    *sorted(RENAMED), *sorted(SECRETS | TEXTS),
)  # fmt: skip


def translate(given: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's properties for what stands after `kafka.`; secrets stay references.

    OptionError: an option has no counterpart, is given twice under two names, or is a secret that
    is not `env:NAME` or `file:PATH`.
    """
    for name in sorted(given.keys() & REFUSED.keys()):
        raise OptionError(f"kafka.{name}: can't be set: {REFUSED[name]}")
    plain = dict(given)
    found: dict[str, str] = {}
    meant: set[str] = set()
    # What Java says in one option and librdkafka in two comes first, and leaves `plain`.
    for of, said in (
        ("", _stores(plain)),
        (f" of kafka.{ENTRY}", _login(plain)),
        ("", plain),
    ):
        for name, value in said.items():
            own = RENAMED.get(name, name)
            one = _ALSO.get(own, own)
            if one in meant:
                raise OptionError(
                    f"kafka.{name}: another kafka.* option says the same; leave one of them out"
                )
            meant.add(one)
            _check_secret(f"kafka.{name}{of}", own, value)
            found[own] = _VALUES.get((own, value), value)
    return found


def _login(given: dict[str, str]) -> dict[str, str]:
    """Take the JAAS line out of `given` and return what it says."""
    line = given.pop(ENTRY, None)
    if line is None:
        return {}
    return credentials(line, given.get("sasl.mechanism") or given.get("sasl.mechanisms"))


def _stores(given: dict[str, str]) -> dict[str, str]:
    """Take Java's key and trust stores out of `given` and return where librdkafka finds them."""
    return {**_trusted(given), **_own_key(given)}


def _trusted(given: dict[str, str]) -> dict[str, str]:
    kind = given.pop("ssl.truststore.type", None)
    location = given.pop("ssl.truststore.location", None)
    if kind is not None and kind.upper() != "PEM":
        raise OptionError(f"kafka.ssl.truststore.type: {kind!r} can't be read; {_PEM_ONLY}")
    if location is None:
        return {}
    if kind is None:
        raise OptionError(f"kafka.ssl.truststore.location: a Java store can't be read; {_PEM_ONLY}")
    return {"ssl.ca.location": location}


def _own_key(given: dict[str, str]) -> dict[str, str]:
    """A PEM file has key and certificates; a PKCS#12 file is what librdkafka calls a store."""
    kind = given.pop("ssl.keystore.type", None)
    if kind is not None and kind.upper() not in {"PEM", "PKCS12"}:
        raise OptionError(
            f"kafka.ssl.keystore.type: {kind!r} can't be read; use PEM or PKCS12 (keytool "
            "-importkeystore -deststoretype PKCS12 makes one)"
        )
    if kind is None or kind.upper() != "PEM":
        return {}
    if "ssl.keystore.password" in given:
        raise OptionError(
            "kafka.ssl.keystore.password: a PEM file has none; its key's is kafka.ssl.key.password"
        )
    location = given.pop("ssl.keystore.location", None)
    if location is None:
        return {}
    return {"ssl.key.location": location, "ssl.certificate.location": location}


def _check_secret(shown: str, name: str, value: str) -> None:
    """Refuse a secret that is written out. The message never shows it."""
    if name in SECRETS and not is_reference(value):
        raise OptionError(
            f"{shown}: a secret is not written into options, which plans and logs show; give "
            "env:NAME or file:PATH, which is read where a connection is opened"
        )
    if _LOGIN.search(value):
        raise OptionError(
            f"{shown}: has a password before its @, which plans and logs would show; leave it out"
        )
    if name in TEXTS and "PRIVATE KEY" in value:
        raise OptionError(f"{shown}: has a private key in it; give that as kafka.ssl.key.pem")
