"""Goal: secrets are resolved where a connection is opened, and seen nowhere else.

And what librdkafka refuses is said by its name.
Method: librdkafka itself, which is not told of any broker; a secret that is looked for in all that
is pickled, printed or raised.
"""

from __future__ import annotations

import logging
import pickle
import shutil
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException

from holdfast.pipelines.intake.client_options import RENAMED, SECRETS, TEXTS, USUAL
from holdfast.pipelines.intake.connection import (
    admin_settings,
    check,
    connection_settings,
    consumer_settings,
    open_admin,
)
from holdfast.pipelines.intake.option_values import OptionError
from holdfast.pipelines.intake.secret_references import SECRET_BYTES_MAX
from holdfast.pipelines.options import parse
from holdfast.pipelines.planner import Planner
from holdfast.pipelines.read_range import Access
from holdfast.pipelines.source import BatchReader, HoldfastSource, StreamReader

SECRET = "correct-horse-battery-staple"
GOOD = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "a"}
SASL = {
    **GOOD,
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": "reader",
    "kafka.sasl.password": "env:HOLDFAST_TEST_SECRET",
}


def client(**more: str) -> tuple[tuple[str, str], ...]:
    return parse({**GOOD, **{f"kafka.{name}": value for name, value in more.items()}}, None).client


# -- secrets -----------------------------------------------------------------------------------


def test_secrets_are_references_wherever_options_go(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOLDFAST_TEST_SECRET", SECRET)
    caplog.set_level(logging.DEBUG)
    source = HoldfastSource(SASL)
    source.schema()
    options = parse(SASL, "stream")
    planner = Planner(options)
    assert planner.listing is planner.listing, "connected"
    stream, batch = StreamReader(options), BatchReader(parse(SASL, "batch"))
    assert stream._planner.listing is not None
    access = Access(client=options.client)
    for kept in (source, options, planner, stream, batch, access):
        assert SECRET.encode() not in pickle.dumps(kept)
        assert b"env:HOLDFAST_TEST_SECRET" in pickle.dumps(kept)
        assert SECRET not in repr(kept)
    # What the planner's client is made of has it, and nothing of ours that stays does.
    assert SECRET not in repr(vars(planner.listing))
    assert SECRET not in caplog.text
    assert consumer_settings(options.client)["sasl.password"] == SECRET
    assert admin_settings(options.client)["sasl.password"] == SECRET
    planner.close()
    stream.stop()


def test_a_file_s_line_end_is_no_part_of_a_secret(tmp_path: Path) -> None:
    path = tmp_path / "password"
    for text, found in (("pw\n", "pw"), (" pw\r\n", " pw"), ("p\nw", "p\nw")):
        path.write_bytes(text.encode())
        told = connection_settings((("sasl.password", f"file:{path}"),))
        assert told == {"sasl.password": found}


def test_public_texts_may_be_files_and_may_be_written_out(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("-----BEGIN CERTIFICATE-----\n")
    for name in sorted(TEXTS):
        for value in ("-----BEGIN CERTIFICATE-----", f"file:{tmp_path}/ca"):
            assert connection_settings(((name, value),)) == {name: "-----BEGIN CERTIFICATE-----"}
    assert connection_settings((("sasl.username", "env:X"),)) == {"sasl.username": "env:X"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "kafka.ssl.keystore.key: {path}: No such file or directory; the driver and each"),
        (b"", "kafka.ssl.keystore.key: file:{path} is empty"),
        (b"\n", "kafka.ssl.keystore.key: file:{path} is empty"),
        # Seen to fail: what stands before it was the secret.
        ("swordfish".encode("utf-16-le"), "kafka.ssl.keystore.key: file:{path} has a zero byte"),
        (b"\xffsecret", "kafka.ssl.keystore.key: {path} is not text in UTF-8"),
        (b"x" * (SECRET_BYTES_MAX + 1), "kafka.ssl.keystore.key: {path} has more than 1048576 b"),
    ],
)
def test_a_secret_that_can_t_be_had_is_said(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OptionError) as refused:
        check((("ssl.key.pem", f"file:{path}"),))
    assert str(refused.value).startswith(said.format(path=path))
    assert refused.value.__cause__ is None or isinstance(refused.value.__cause__, OSError)


def test_a_variable_that_is_not_there_is_said_when_the_source_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HOLDFAST_TEST_SECRET", raising=False)
    said = "kafka.sasl.password: this process has no environment variable 'HOLDFAST_TEST_SECRET'"
    with pytest.raises(OptionError, match=said):
        HoldfastSource(SASL).schema()
    monkeypatch.setenv("HOLDFAST_TEST_SECRET", "")
    with pytest.raises(OptionError, match="env:HOLDFAST_TEST_SECRET is empty"):
        HoldfastSource(SASL).schema()


def test_what_librdkafka_says_of_a_secret_does_not_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that is none: whatever is quoted, the value is not."""
    monkeypatch.setenv("HOLDFAST_TEST_SECRET", SECRET)
    with pytest.raises(OptionError) as refused:
        check((("security.protocol", "ssl"), ("ssl.key.pem", "env:HOLDFAST_TEST_SECRET")))
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None


# -- names and values --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("fetch.mn.bytes", "kafka.fetch.min.bytes"),
        ("sasl.pasword", "kafka.sasl.password"),
        ("isolation.levl", "kafka.isolation.level"),
        ("ssl.trustore.certificates", "kafka.ssl.truststore.certificates"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(name: str, meant: str) -> None:
    with pytest.raises(OptionError) as refused:
        check(client(**{name: SECRET}))
    assert str(refused.value) == (
        f"kafka.{name}: neither librdkafka nor Java's client has it; the nearest that is known is "
        f"{meant}"
    )


def test_what_resembles_nothing_is_refused_by_both_clients() -> None:
    said = r"kafka\.zzzz: neither librdkafka nor Java's client has it$"
    for ask in (check, open_admin):
        with pytest.raises(OptionError, match=said):
            ask(client(zzzz="1"))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("fetch.max.wait.ms", "soon", r'"fetch.wait.max.ms" \(Java\'s name is fetch.max.wait.ms\)'),
        ("fetch.min.bytes", "-1", "fetch.min.bytes"),
        ("security.protocol", "TLS", "security.protocol"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_when_the_source_is_loaded(
    name: str, value: str, said: str
) -> None:
    with pytest.raises(OptionError, match=rf"kafka\.\*: the client refuses its options: .*{said}"):
        HoldfastSource({**GOOD, f"kafka.{name}": value}).schema()


def test_librdkafka_knows_every_name_that_it_is_told() -> None:
    """It would say so: a name in our tables that is none of its own is a slip of ours."""
    java_only = {*RENAMED, "sasl.jaas.config", "ssl.keystore.type", "ssl.truststore.type",
                 "ssl.truststore.location"}  # fmt: skip
    for name in sorted({*USUAL, *RENAMED.values(), *SECRETS, *TEXTS} - java_only):
        assert "No such configuration property" not in _refusal(name)
    assert "No such configuration property" in _refusal("no.such")


def _refusal(name: str) -> str:
    try:
        Consumer({"group.id": "x", name: "\x01"}).close()
    except KafkaException as error:
        return str(error.args[0].str())
    return ""


def test_an_admin_client_is_not_told_what_only_consumers_have(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """It would warn of each, once a connection, on standard error."""
    many = {"fetch.max.wait.ms": "7", "check.crcs": "true", "group.id": "x"}
    open_admin(client(**many))
    assert "CONFWARN" not in capfd.readouterr().err


# -- keys and certificates ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a key, plain and encrypted, its certificate, and both in one file."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is not on this machine (Debian: apt-get install openssl)")
    folder = tmp_path_factory.mktemp("keys")
    word = f"pass:{SECRET}"
    for line in (
        "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out key",
        f"pkcs8 -topk8 -in key -out encrypted -passout {word}",
        "req -new -x509 -key key -subj /CN=test -days 2 -out certificate",
        f"pkcs12 -export -inkey key -in certificate -out store -passout {word}",
    ):
        subprocess.run([program, *line.split()], cwd=folder, check=True, capture_output=True)
    certificate = (folder / "certificate").read_text()
    for name in ("key", "encrypted"):
        (folder / f"{name}-and-certificate").write_text((folder / name).read_text() + certificate)
    return folder


PEM = {"ssl.keystore.type": "PEM"}
PASSWORD = "env:HOLDFAST_TEST_SECRET"


@pytest.mark.process
@pytest.mark.parametrize(
    ("given", "opened"),
    [
        ({"ssl.truststore.type": "PEM", "ssl.truststore.location": "{}/certificate"}, True),
        ({"ssl.truststore.certificates": "file:{}/certificate"}, True),
        ({"ssl.truststore.certificates": "file:{}/key"}, False),
        ({**PEM, "ssl.keystore.location": "{}/key-and-certificate"}, True),
        ({**PEM, "ssl.keystore.location": "{}/certificate"}, False),
        ({**PEM, "ssl.keystore.location": "{}/encrypted-and-certificate",
          "ssl.key.password": PASSWORD}, True),
        ({**PEM, "ssl.keystore.location": "{}/encrypted-and-certificate",
          "ssl.key.password": "file:{}/certificate"}, False),
        ({**PEM, "ssl.keystore.key": "file:{}/key",
          "ssl.keystore.certificate.chain": "file:{}/certificate"}, True),
        ({**PEM, "ssl.keystore.key": "file:{}/encrypted", "ssl.key.password": PASSWORD,
          "ssl.keystore.certificate.chain": "file:{}/certificate"}, True),
        ({"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "{}/store",
          "ssl.keystore.password": PASSWORD}, True),
        ({"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "{}/store",
          "ssl.keystore.password": "file:{}/certificate"}, False),
        ({"ssl.endpoint.identification.algorithm": ""}, True),
    ],
)  # fmt: skip
def test_java_s_stores_are_opened(
    keys: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], *, opened: bool
) -> None:
    """Librdkafka opens them when a client is made, so a wrong one is refused before any query."""
    monkeypatch.setenv("HOLDFAST_TEST_SECRET", SECRET)
    options = {name: value.replace("{}", str(keys)) for name, value in given.items()}
    properties = client(**{"security.protocol": "SSL", **options})
    if opened:
        check(properties)
        return
    with pytest.raises(OptionError, match="the client refuses its options: ") as refused:
        check(properties)
    assert (keys / "certificate").read_text().strip() not in str(refused.value)


@pytest.mark.parametrize("size", [1_000, 50_000, 999_999, 1_000_000, 52_428_800])
def test_a_fetch_may_be_as_small_as_java_takes_it(size: int) -> None:
    """Librdkafka alone wants it to be no smaller than a producer's message."""
    given = parse({**GOOD, "kafka.fetch.max.bytes": str(size)}, "batch").client
    check(given)
    assert consumer_settings(given)["fetch.max.bytes"] == str(size)
