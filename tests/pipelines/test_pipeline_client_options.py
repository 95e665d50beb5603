"""Goal: Java's client options mean here what they mean there, or are refused by name.

Method: tables of what is given and what librdkafka is told. That librdkafka knows each name that we
tell it, it says itself (`test_pipeline_connection`).
"""

from __future__ import annotations

import pytest

from holdfast.pipelines.intake.client_options import REFUSED, RENAMED, SECRETS, USUAL, translate
from holdfast.pipelines.intake.option_values import OptionError

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password='
SCRAM = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required\n"
    '  username="a \\"b\\"" password=env:PW;'
)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"client.rack": "r", "linger": "7"}, {"client.rack": "r", "linger": "7"}),
        ({"fetch.max.wait.ms": "7"}, {"fetch.wait.max.ms": "7"}),
        ({"fetch.wait.max.ms": "7"}, {"fetch.wait.max.ms": "7"}),
        ({"request.timeout.ms": "7"}, {"socket.timeout.ms": "7"}),
        ({"send.buffer.bytes": "-1", "receive.buffer.bytes": "9"},
         {"socket.send.buffer.bytes": "0", "socket.receive.buffer.bytes": "9"}),
        ({"receive.buffer.bytes": "-1"}, {"socket.receive.buffer.bytes": "0"}),
        ({"connections.max.idle.ms": "-1"}, {"connections.max.idle.ms": "0"}),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
          "sasl.jaas.config": f'{PLAIN}"env:PW";'},
         {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "a",
          "sasl.password": "env:PW"}),
        ({"sasl.mechanisms": "SCRAM-SHA-256", "sasl.jaas.config": SCRAM},
         {"sasl.mechanisms": "SCRAM-SHA-256", "sasl.username": 'a "b"', "sasl.password": "env:PW"}),
        ({"ssl.endpoint.identification.algorithm": ""},
         {"ssl.endpoint.identification.algorithm": "none"}),
        ({"ssl.endpoint.identification.algorithm": "HTTPS"},
         {"ssl.endpoint.identification.algorithm": "https"}),
        ({"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem"},
         {"ssl.ca.location": "/ca.pem"}),
        ({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "-----BEGIN"},
         {"ssl.ca.pem": "-----BEGIN"}),
        ({"ssl.keystore.type": "pem", "ssl.keystore.location": "/key.pem",
          "ssl.key.password": "file:/p"},
         {"ssl.key.location": "/key.pem", "ssl.certificate.location": "/key.pem",
          "ssl.key.password": "file:/p"}),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.key": "file:/k",
          "ssl.keystore.certificate.chain": "file:/c"},
         {"ssl.key.pem": "file:/k", "ssl.certificate.pem": "file:/c"}),
        ({"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/k.p12",
          "ssl.keystore.password": "env:P"},
         {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "env:P"}),
    ],
)  # fmt: skip
def test_java_s_options_in_librdkafka_s_words(given: dict[str, str], told: dict[str, str]) -> None:
    assert translate(given) == told


JAAS = "kafka.sasl.jaas.config"
OAUTH = (
    "has no counterpart here; use kafka.sasl.oauthbearer.method=oidc, "
    "kafka.sasl.oauthbearer.client.id and so on"
)
PASSWORD = {"sasl.mechanism": "PLAIN"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"fetch.max.wait.ms": "7", "fetch.wait.max.ms": "7"},
         "kafka.fetch.wait.max.ms: another kafka.* option says the same; leave one of them out"),
        ({"fetch.wait.max.ms": "7", "fetch.max.wait.ms": "7"},
         "kafka.fetch.max.wait.ms: another kafka.* option says the same; leave one of them out"),
        ({**PASSWORD, "sasl.mechanisms": "GSSAPI"},
         "kafka.sasl.mechanisms: another kafka.* option says the same; leave one of them out"),
        ({"fetch.message.max.bytes": "7", "max.partition.fetch.bytes": "8"},
         "kafka.max.partition.fetch.bytes: another kafka.* option says the same"),
        ({**PASSWORD, "sasl.jaas.config": f"{PLAIN}env:P;", "sasl.username": "b"},
         "kafka.sasl.username: another kafka.* option says the same"),
        ({"sasl.jaas.config": f"{PLAIN}env:P;"},
         f"{JAAS}: PlainLoginModule needs kafka.sasl.mechanism, PLAIN"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": SCRAM},
         f"{JAAS}: ScramLoginModule needs kafka.sasl.mechanism, SCRAM-SHA-256 or SCRAM-SHA-512"),
        ({**PASSWORD, "sasl.jaas.config": "x.y.Krb5LoginModule required a=b;"},
         f"{JAAS}: the module Krb5LoginModule has no counterpart here; use kafka.sasl.kerberos."),
        ({**PASSWORD, "sasl.jaas.config": "x.OAuthBearerLoginModule required;"},
         f"{JAAS}: the module OAuthBearerLoginModule {OAUTH}"),
        ({**PASSWORD, "sasl.jaas.config": "x.OtherModule required;"},
         f"{JAAS}: the module OtherModule has no counterpart here; known are PlainLoginModule and"),
        ({**PASSWORD, "sasl.jaas.config": "x.PlainLoginModule required username=a;"},
         f"{JAAS}: password is missing"),
        ({**PASSWORD, "sasl.jaas.config": 'x.PlainLoginModule required password="env:P";'},
         f"{JAAS}: username is missing"),
        ({**PASSWORD, "sasl.jaas.config": f"{PLAIN}env:P tokenauth=true;"},
         f"{JAAS}: its option tokenauth has no counterpart here; leave it out"),
        ({**PASSWORD, "sasl.jaas.config": f"{PLAIN}env:P password=env:Q;"},
         f"{JAAS}: one of its options is there twice; leave one of them out"),
        ({"ssl.truststore.type": "JKS"}, "kafka.ssl.truststore.type: 'JKS' can't be read; give "),
        ({"ssl.truststore.location": "/t.jks"},
         "kafka.ssl.truststore.location: a Java store can't be read; give the certificates as PEM"),
        ({"ssl.keystore.type": "JKS"}, "kafka.ssl.keystore.type: 'JKS' can't be read; use PEM or"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.password": "env:P"},
         "kafka.ssl.keystore.password: a PEM file has none; its key's is kafka.ssl.key.password"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.location": "/k", "ssl.key.location": "/l"},
         "kafka.ssl.key.location: another kafka.* option says the same"),
    ],
)  # fmt: skip
def test_what_has_no_counterpart_is_refused_by_name(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as refused:
        translate(given)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_refused_says_why(name: str) -> None:
    with pytest.raises(OptionError) as refused:
        translate({name: "x"})
    assert str(refused.value) == f"kafka.{name}: can't be set: {REFUSED[name]}"
    assert len(REFUSED[name]) > 20, "which is a reason"


LITERAL = "hunter2-is-secret"


@pytest.mark.parametrize(
    "given",
    [
        *({name: LITERAL} for name in sorted(SECRETS)),
        *({name: value} for name in ("sasl.password",) for value in (f"ENV:{LITERAL}", "env:", "")),
        {"ssl.keystore.key": LITERAL},
        {"ssl.truststore.password": LITERAL},
        {"ssl.keystore.certificate.chain": f"-----BEGIN PRIVATE KEY-----{LITERAL}"},
        {"ssl.keystore.type": "PEM", "ssl.keystore.password": LITERAL},
        *(
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": line}
            for line in (
                f'{PLAIN}"{LITERAL}";',
                f"{PLAIN}{LITERAL};",
                f'{PLAIN}"{LITERAL}',  # no form at all
                f'{PLAIN}"{LITERAL}" odd=1;',
                f'x.Krb5LoginModule required password="{LITERAL}";',
            )
        ),
    ],
)  # fmt: skip
def test_a_secret_that_is_written_out_is_refused_and_not_shown(given: dict[str, str]) -> None:
    with pytest.raises(OptionError) as refused:
        translate(given)
    shown, error = "", refused.value
    while error is not None:
        shown += str(error) + repr(error)
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    assert "kafka." in shown
    assert LITERAL not in shown


def test_a_long_line_of_java_s_does_not_hold_the_planner_up() -> None:
    whole = f'{PLAIN}"env:{"P" * 20_000}";'
    with pytest.raises(OptionError, match="not of the form"):
        translate({**PASSWORD, "sasl.jaas.config": whole})
    with pytest.raises(OptionError, match="not of the form"):
        translate({**PASSWORD, "sasl.jaas.config": "x.PlainLoginModule required " + "a=b " * 4_000})


def test_all_that_is_secret_is_known_to_be() -> None:
    """By librdkafka's list of properties: passwords, passphrases, client secrets, private keys."""
    assert {
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
    } == SECRETS


def test_tables_do_not_contradict_each_other() -> None:
    """What is renamed or usual is not refused, and a secret is known by librdkafka's name."""
    assert not REFUSED.keys() & {*RENAMED, *RENAMED.values(), *USUAL, *SECRETS}
    assert not SECRETS & RENAMED.keys()
