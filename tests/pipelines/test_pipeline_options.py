"""Goal: an option that is wrong is refused, by name, before anything runs. Method: a table."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias

import pytest

from holdfast.pipelines.intake.bounds import ByTime
from holdfast.pipelines.intake.client_options import REFUSED, RENAMED, SECRETS, TEXTS
from holdfast.pipelines.intake.connection import consumer_settings
from holdfast.pipelines.intake.gone_data import GoneData
from holdfast.pipelines.intake.option_values import OptionError
from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.options import ELSEWHERE, KNOWN, SourceOptions, parse
from holdfast.pipelines.progress.group import ProgressGroup
from holdfast.wire.well_known import EARLIEST, LATEST

GOOD = {"kafka.bootstrap.servers": "host:9092", "subscribe": "a"}
Mode: TypeAlias = Literal["stream", "batch"]

PATTERN = {"kafka.bootstrap.servers": "host:9092", "subscribePattern": "a.*"}
OTHER = {"kafka.bootstrap.servers": "host:9092", "assign": '{"a":[1,0]}'}


def test_defaults_are_the_jvm_connectors() -> None:
    client = (("bootstrap.servers", "host:9092"), ("isolation.level", "read_uncommitted"))
    stream = parse(GOOD, "stream")
    assert stream == SourceOptions(
        client=client,
        topics=("a",),
        partitions=(),
        starting=LATEST,
        ending=LATEST,
        rows_max=None,
        rows_min=None,
        wait_ms_max=15 * 60_000,
        tasks_min=None,
        task_rows_max=None,
        headers=False,
        poll_timeout_ms=120_000,
        offset_retries=None,
        offset_pause_ms=None,
    )
    assert stream == SourceOptions(client=client, topics=("a",), starting=LATEST)
    assert SourceOptions(client=client, starting=LATEST).topics == ()
    assert parse(GOOD, "batch") == replace(stream, starting=EARLIEST)


def test_what_is_given_is_taken() -> None:
    given = {
        **GOOD,
        "endingOffsets": '{"a":{"0":9}}',
        "maxOffsetsPerTrigger": "1",
        "kafkaConsumer.pollTimeoutMs": "7",
    }
    options = parse(given, "batch")
    assert options.ending == {Partition("a", 0): 9}
    assert (options.rows_max, options.poll_timeout_ms) == (1, 7)


@pytest.mark.parametrize(
    ("level", "committed"), [("read_committed", True), ("read_uncommitted", False), (None, False)]
)
def test_what_is_committed_is_asked_for_by_the_clients_own_property(
    level: str | None, committed: bool
) -> None:
    isolation = {} if level is None else {"kafka.isolation.level": level}
    assert parse({**GOOD, **isolation}, "stream").read_committed is committed


def test_case_of_names_does_not_matter() -> None:
    given = {**GOOD, "STARTINGOFFSETS": "Earliest", "failondataloss": "False"}
    options = parse(given, "stream")
    assert options.starting == EARLIEST
    assert options.gone == GoneData("skip")


def test_assign_and_offsets_by_partition() -> None:
    given = {**OTHER, "startingOffsets": '{"a":{"0":7,"1":-2}}', "endingOffsets": "latest"}
    options = parse(given, "batch")
    assert options.partitions == (Partition("a", 0), Partition("a", 1))
    assert options.starting == {Partition("a", 0): 7, Partition("a", 1): EARLIEST}


def test_client_properties_go_through() -> None:
    options = parse({**GOOD, "kafka.fetch.min.bytes": "7"}, "stream")
    assert dict(options.client) == {
        "bootstrap.servers": "host:9092",
        "fetch.min.bytes": "7",
        "isolation.level": "read_uncommitted",
    }


def test_every_known_option_is_taken() -> None:
    """Method: each of them once, with a value that is not its default, and what became of it."""
    given = {
        "kafka.bootstrap.servers": "host:9092",
        "subscribePattern": "a-.*",
        "startingTimestamp": "1700000000000",
        "endingTimestamp": "1700000000001",
        "startingOffsetsByTimestampStrategy": "Latest",
        "maxOffsetsPerTrigger": "9",
        "minOffsetsPerTrigger": "3",
        "maxTriggerDelay": "2m",
        "minPartitions": "4",
        "maxRecordsPerPartition": "5",
        "includeHeaders": "true",
        "groupIdPrefix": "mine",
        "failOnDataLoss": "false",
        "kafkaConsumer.pollTimeoutMs": "6",
        "fetchOffset.numRetries": "0",
        "fetchOffset.retryIntervalMs": "7",
        "maxBytesPerFetch": "8",
    }
    assert parse(given, "batch") == SourceOptions(
        client=(
            ("bootstrap.servers", "host:9092"),
            ("group.id", "mine-reader"),
            ("isolation.level", "read_uncommitted"),
        ),
        pattern="a-.*",
        starting=ByTime("startingTimestamp", 1_700_000_000_000, or_latest=True),
        ending=ByTime("endingTimestamp", 1_700_000_000_001, or_latest=True),
        rows_max=9,
        rows_min=3,
        wait_ms_max=120_000,
        tasks_min=4,
        task_rows_max=5,
        headers=True,
        gone=GoneData("skip"),
        poll_timeout_ms=6,
        fetch_bytes=8,
        offset_retries=0,
        offset_pause_ms=7,
    )


def test_the_largest_numbers_are_taken() -> None:
    latest = {"startingOffsetsByTimestamp": f'{{"a":{{"0":{(1 << 63) - 1}}}}}'}
    by_time = parse({**GOOD, **latest}, "stream").starting
    assert by_time == ByTime("startingOffsetsByTimestamp", {Partition("a", 0): (1 << 63) - 1})
    assert parse({**GOOD, "maxOffsetsPerTrigger": "9" * 18}, "stream").rows_max == 10**18 - 1
    assert parse({**GOOD, "minPartitions": "100000"}, "stream").tasks_min == 100_000


def test_json_without_an_end_is_refused_as_json() -> None:
    for name in ("startingOffsetsByTimestamp", "assign"):
        given = {**(OTHER if name == "assign" else GOOD), name: "[" * 100_000}
        with pytest.raises(OptionError, match=f"{name}: not JSON: "):
            parse(given, "stream")


def test_an_end_may_be_the_beginning() -> None:
    """Nothing is read then, as of any span that has no length."""
    times = {"startingTimestamp": "9", "endingTimestamp": "9"}
    assert parse({**GOOD, **times}, "batch").ending == ByTime("endingTimestamp", 9, or_latest=True)


def test_least_and_most_may_be_the_same() -> None:
    given = {**GOOD, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "9"}
    assert (parse(given, "stream").rows_min, parse(given, "stream").rows_max) == (9, 9)


def test_a_whole_group_id_counts_before_a_prefix() -> None:
    """As in Spark. Without either the client's name is the source's own."""
    both = {**GOOD, "kafka.group.id": "whole", "groupIdPrefix": "mine"}
    assert dict(parse(both, "stream").client)["group.id"] == "whole"
    assert consumer_settings(parse(both, "stream").client)["group.id"] == "whole"
    assert consumer_settings(parse(GOOD, "stream").client)["group.id"] == "holdfast-reader"


TIMES = '{"a":{"0":5,"1":0}}'


@pytest.mark.parametrize(
    ("given", "starting"),
    [
        ({"startingOffsets": "earliest"}, EARLIEST),
        ({"startingOffsetsByTimestamp": TIMES, "startingOffsets": "earliest"},
         ByTime("startingOffsetsByTimestamp", {Partition("a", 0): 5, Partition("a", 1): 0})),
        ({"startingTimestamp": "7", "startingOffsetsByTimestamp": TIMES,
          "startingOffsets": "earliest"}, ByTime("startingTimestamp", 7)),
        ({"startingTimestamp": "7", "startingOffsets": "earliest"}, ByTime("startingTimestamp", 7)),
    ],
)  # fmt: skip
def test_of_three_ways_to_say_where_to_begin_the_first_counts(
    given: dict[str, str], starting: object
) -> None:
    assert parse({**GOOD, **given}, "stream").starting == starting
    ended = {name.replace("starting", "ending"): value for name, value in given.items()}
    if starting != EARLIEST:
        assert isinstance(starting, ByTime)
        option = starting.option.replace("starting", "ending")
        at_end = replace(starting, option=option, or_latest=True)
        assert parse({**GOOD, **ended}, "batch").ending == at_end, "an end has no strategy"


@pytest.mark.parametrize("mode", ["stream", "batch", None])
def test_what_is_wrong_in_every_mode_is_said_without_one(mode: Mode | None) -> None:
    with pytest.raises(OptionError, match="maxOffsetsPerTrigger: '0'"):
        parse({**GOOD, "maxOffsetsPerTrigger": "0"}, mode)


def test_a_progress_group_goes_with_the_way_to_its_cluster() -> None:
    """Goal: what a sink is told of the connection is enough to reach the cluster, and no more: no
    setting of a reader's, and a secret stays a reference.
    """
    options = parse(
        {
            **GOOD,
            "progressGroup": " lag-of-orders ",
            "groupIdPrefix": "mine",
            "kafka.client.id": "orders",
            "kafka.fetch.min.bytes": "7",
            "kafka.isolation.level": "read_committed",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "me",
            "kafka.sasl.password": "env:SECRET",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": "/ca.pem",
            "kafka.request.timeout.ms": "5",
        },
        "stream",
    )
    assert options.progress == ProgressGroup(
        "lag-of-orders",
        (
            ("bootstrap.servers", GOOD["kafka.bootstrap.servers"]),
            ("client.id", "orders"),
            ("sasl.mechanism", "PLAIN"),
            ("sasl.password", "env:SECRET"),
            ("sasl.username", "me"),
            ("security.protocol", "SASL_SSL"),
            ("socket.timeout.ms", "5"),
            ("ssl.ca.location", "/ca.pem"),
        ),
    )
    assert parse(GOOD, "stream").progress is None


def test_what_is_wrong_in_one_mode_only_waits_until_it_is_known() -> None:
    assert parse({**GOOD, "startingOffsets": "latest"}, None).starting == LATEST
    assert parse({**GOOD, "endingTimestamp": "5"}, None).ending == ByTime(
        "endingTimestamp", 5, or_latest=True
    )


ONE = (
    'give exactly one of subscribe ("topic,topic"), subscribePattern ("topic-.*") and assign '
    "('{\"topic\":[0,1]}')"
)
ADDRESSES = 'give it as "host:port,host:port"'
MISSING = f"kafka.bootstrap.servers: missing; {ADDRESSES}"
OFFSETS = 'use earliest, latest or {"topic":{"0":17,"1":-2}}'
NO_END = "endingOffsets: a query can't end at earliest (-2)"
NO_LATEST = "startingOffsets: a batch query can't start at latest"
BY_TIME = 'is not of the form {"topic":{"0":1700000000000}}'
STREAM_ENDS = "a stream has no end; leave it out, or use read"


@pytest.mark.parametrize(
    ("options", "mode", "said"),
    [
        ({"subscribe": "a"}, "stream", MISSING),
        ({"subscribe": "a", "kafka.bootstrap.servers": ""}, "stream", MISSING),
        ({**GOOD, "assign": '{"a":[0]}'}, "stream", ONE),
        ({**GOOD, "kafka.bootstrap.servers": " , "}, "stream", MISSING),
        *(
            ({**GOOD, "kafka.bootstrap.servers": f"a:1,{text}"}, "stream",
             f"kafka.bootstrap.servers: {text!r} is not host:port; {ADDRESSES}")
            for text in ("b:port", "b:0", "b:65536", ":9092", "b:", "b 9092", "b:1 c:2")
        ),
        ({**GOOD, "kafka.bootstrap.servers": "SASL_SSL://u:swordfish@b:1"}, "stream",
         f"kafka.bootstrap.servers: an address is not host:port; {ADDRESSES}"),
        ({**GOOD, "kafka.sasl.oauthbearer.token.endpoint.url": "https://u:swordfish@h/t"}, "stream",
         "kafka.sasl.oauthbearer.token.endpoint.url: has a password before its @*leave it out"),
        ({"kafka.bootstrap.servers": "x"}, "stream", ONE),
        ({**GOOD, "subscribePattern": "a.*"}, "stream", ONE),
        ({**PATTERN, "subscribePattern": " "}, "stream",
         "subscribePattern: is empty; give one that topics' names have"),
        ({**PATTERN, "subscribePattern": "(?=a)"}, "stream",
         "subscribePattern: '(?=a)' is not in RE2's syntax: *re2/wiki/Syntax)"),
        ({**GOOD, "subscribe": " , "}, "stream", "subscribe: no topic is named"),
        *(
            ({**GOOD, "subscribe": f"a,{name}"}, "stream",
             f"subscribe: no topic can be called {name!r}:*")
            for name in ("b c", "b;c", "\u0442", "..", "b/c", "b" * 250)
        ),
        ({**OTHER, "assign": '{"\\ud800":[0]}'}, "stream",
         "assign: no topic can be called '\\ud800':*"),
        ({**OTHER, "assign": "a"}, "stream", "assign: not JSON: Expecting value*"),
        *(
            ({**OTHER, "assign": text}, "stream",
             f'assign: {text!r} is not of the form {{"topic":[0,1]}}')
            for text in ('{"a":["0"]}', '{"a":[true]}', '{"a":[-1]}', '{"a":0}', "[0]", "{}")
        ),
        ({**GOOD, "startingoffset": "latest"}, "stream",
         "startingoffset: unknown option; the nearest that is known is startingOffsets"),
        ({**GOOD, "fetch.min.byte": "1"}, "stream",
         "fetch.min.byte: unknown option; the nearest that is known is kafka.fetch.min.bytes"),
        ({**GOOD, "zzz": "1"}, "stream",
         f"zzz: unknown option; known are {', '.join(KNOWN)} and kafka.*"),
        ({**GOOD, "topic": "b"}, "stream",
         "topic: can't be set: it says where the JVM connector writes; to read, use subscribe"),
        ({**GOOD, "path": "b"}, "stream",
         "path: can't be set: a log has none; leave load() empty, and use subscribe"),
        ({**GOOD, "startingOffsets": "first"}, "stream", f"startingOffsets: *; {OFFSETS}"),
        ({**GOOD, "startingOffsets": "latest"}, "batch", NO_LATEST),
        ({**GOOD, "startingOffsets": '{"a":{"0":-1}}'}, "batch", f"{NO_LATEST} (-1)"),
        *(
            ({**GOOD, name: value}, "stream", f"{name}: {STREAM_ENDS}")
            for name, value in (("endingOffsets", "latest"), ("endingTimestamp", "5"),
                                ("endingOffsetsByTimestamp", TIMES))
        ),
        *(
            ({**GOOD, "startingTimestamp": text}, "stream",
             f"startingTimestamp: {text!r} is no time in milliseconds since 1970")
            for text in ("-1", "yesterday", "1.5", "", "9" * 19)
        ),
        *(
            ({**GOOD, "startingOffsetsByTimestamp": text}, "stream",
             f"startingOffsetsByTimestamp: {text!r} {BY_TIME}")
            for text in ("[]", "{}", '{"a":5}', '{"a":{"x":5}}', '{"a":{"0":-1}}',
                         '{"a":{"0":"5"}}', '{"a":{"0":true}}', '{"a":{"0":1e3}}',
                         f'{{"a":{{"0":{1 << 63}}}}}')
        ),
        ({**GOOD, "startingOffsetsByTimestamp": "{"}, "stream",
         "startingOffsetsByTimestamp: not JSON: Expecting *"),
        ({**GOOD, "startingOffsetsByTimestampStrategy": "earliest"}, "stream",
         "startingOffsetsByTimestampStrategy: 'earliest'; use error or latest"),
        ({**GOOD, "startingTimestamp": "9", "endingTimestamp": "8"}, "batch",
         "endingTimestamp: 8 is before startingTimestamp, which is 9"),
        ({**GOOD, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "stream",
         "minOffsetsPerTrigger: 9 is more than maxOffsetsPerTrigger, which is 8"),
        *(
            ({**GOOD, "maxTriggerDelay": text}, "stream",
             f"maxTriggerDelay: {text!r} is no time; use 15m, 90s or milliseconds")
            for text in ("soon", "-1s", "1.5s", "", "5 weeks", "m")
        ),
        ({**GOOD, "minPartitions": "100001"}, "stream",
         "minPartitions: 100001 is more than 100000, the most there can be"),
        *(
            ({**GOOD, name: "-1"}, "stream", f"{name}: '-1' is no whole number from 0 on")
            for name in ("fetchOffset.numRetries", "fetchOffset.retryIntervalMs")
        ),
        *(
            ({**GOOD, name: str(1 << 31)}, "stream",
             f"{name}: 2147483648 is more than 2147483647, the most there can be")
            for name in ("fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
                         "kafkaConsumer.pollTimeoutMs")
        ),
        ({**GOOD, "groupIdPrefix": " "}, "stream",
         "groupIdPrefix: is empty; give a name, or leave it out"),
        ({**GOOD, "progressGroup": " "}, "stream",
         "progressGroup: is empty; give a group's name, or leave it out"),
        ({**GOOD, "progressGroup": "g"}, "batch",
         "progressGroup: a batch query has no progress; leave it out"),
        *(
            ({**GOOD, **kerberos, "progressGroup": "g"}, "stream", "progressGroup: not with Kerb*")
            for kerberos in ({"kafka.security.protocol": "SASL_SSL"},
                             {"kafka.security.protocol": "sasl_plaintext",
                              "kafka.sasl.mechanism": "gssapi"})
        ),
        ({**GOOD, "kafka.group.id": ""}, "stream",
         "kafka.group.id: is empty; give a name, or leave it out"),
        ({**GOOD, "includeHeaders": "1"}, "stream", "includeHeaders: '1'; use true or false"),
        ({**GOOD, "endingOffsets": "earliest"}, "batch", NO_END),
        ({**GOOD, "endingOffsets": '{"a":{"0":-2}}'}, "batch", NO_END),
        *(
            ({**GOOD, name: text}, "stream", f"{name}: {text!r} is no positive whole number")
            for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "minPartitions",
                         "maxRecordsPerPartition", "kafkaConsumer.pollTimeoutMs",
                         "maxBytesPerFetch")
            for text in ("0", "many", "-1", "1.5", "\u00b2", "", "1" * 19)
        ),
        ({**GOOD, "maxBytesPerFetch": "1073741825"}, "stream",
         "maxBytesPerFetch: 1073741825; 1073741824 at most"),
        ({**GOOD, "failOnDataLoss": "no"}, "stream", "failOnDataLoss: 'no'; use true or false"),
        ({**GOOD, "kafka.isolation.level": "serializable"}, "stream",
         "kafka.isolation.level: 'serializable'; use read_uncommitted or read_committed"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(options: dict[str, str], mode: Mode, said: str) -> None:
    """An asterisk stands for a library's own words."""
    with pytest.raises(OptionError) as refused:
        parse(options, mode)
    begin, _, end = said.partition("*")
    assert str(refused.value).startswith(begin)
    assert str(refused.value).endswith(end)
    assert "*" in said or str(refused.value) == said


@pytest.mark.parametrize(
    "text", ["h", "h:1, i:2,", "PLAINTEXT://h:1", "[::1]:9092", "[::1]", "::1:1"]
)
def test_addresses_are_taken_as_the_client_spells_them(text: str) -> None:
    assert dict(parse({**GOOD, "kafka.bootstrap.servers": text}, None).client)["bootstrap.servers"]


def test_times_are_spelt_as_spark_spells_them() -> None:
    spelt = {
        "7": 7, "7ms": 7, "7 s": 7_000, "2m": 120_000, "2MIN": 120_000, " 3h ": 10_800_000,
        "1d": 86_400_000, "1999us": 1, "999us": 0, "5000000ns": 5, "0": 0,
        **{f"{10**9}{unit}": 10**12 * seconds for unit, seconds in (
            ("s", 1), ("m", 60), ("min", 60), ("h", 3_600), ("d", 86_400))},
    }  # fmt: skip
    for text, expected in spelt.items():
        assert parse({**GOOD, "maxTriggerDelay": text}, "stream").wait_ms_max == expected, text


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (
            "session.timeout.ms",
            "no consumer group is joined, so it would have no effect; leave it out",
        ),
        ("enable.auto.commit", "offsets live in Spark's checkpoint"),
        ("auto.offset.reset", "use startingOffsets; a reset would skip records silently"),
        ("enable.auto.offset.store", "offsets live in Spark's checkpoint"),
        ("enable.partition.eof", "the source needs it to see the end of a partition"),
        ("key.deserializer", "keys are bytes; use Spark's functions"),
        ("value.deserializer", "values are bytes; use Spark's functions"),
        ("interceptor.classes", "it is a class of the JVM client"),
    ],
)
def test_what_the_source_decides_itself_is_refused_with_why(name: str, why: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse({**GOOD, f"kafka.{name}": "x"}, "stream")
    assert str(refused.value) == f"kafka.{name}: can't be set: {why}"


def test_a_full_queue_is_looked_at_again_soon_unless_the_user_says_otherwise() -> None:
    """The client's own second costs a worker most of its time."""
    client = (("bootstrap.servers", "x"),)
    assert consumer_settings(client)["fetch.queue.backoff.ms"] == "2"
    chosen = consumer_settings((*client, ("fetch.queue.backoff.ms", "50")))
    assert chosen["fetch.queue.backoff.ms"] == "50"


PAGE = Path(__file__).parents[2] / "docs" / "reference" / "spark-options.md"
NAMES = re.compile(r"`([\w.]+)`")


def test_the_reference_names_every_option() -> None:
    named = set(NAMES.findall(PAGE.read_text(encoding="utf-8")))
    left_out = {"path", "https.ca.pem", "sasl.oauthbearer.assertion.private.key.passphrase"}
    wanted = {*KNOWN, *ELSEWHERE, *RENAMED, *RENAMED.values(), *SECRETS, *TEXTS}
    assert not wanted - named - left_out
    assert not {name.lower() for name in KNOWN} & (named - set(KNOWN)), "or in another spelling"


def test_the_reference_names_what_is_refused_and_nothing_else_is() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = text.partition("Refused, each with why:")[2].partition("\n## ")[0]
    first_cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    named = set(NAMES.findall(" ".join(first_cells)))
    by_value = {"ssl.truststore.type", "ssl.keystore.type", "JKS"}
    callbacks = {name for name in REFUSED if name.endswith("_cb")}
    assert named - by_value - callbacks == REFUSED.keys() - callbacks


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({}, GoneData("fail")),
        ({"goneData": "Skip"}, GoneData("skip")),
        ({"goneData": "skip", "failOnDataLoss": "false"}, GoneData("skip")),
        ({"goneData": '{"u":"skip","t":"fail"}'}, GoneData("fail", (("t", "fail"), ("u", "skip")))),
        (
            {"goneData": '{"t":"fail"}', "failOnDataLoss": "false"},
            GoneData("skip", (("t", "fail"),)),
        ),
        ({"goneData": "reset", "startingOffsets": "earliest"}, GoneData("reset")),
    ],
)
def test_what_becomes_of_gone_data(given: dict[str, str], meant: GoneData) -> None:
    found = parse({"kafka.bootstrap.servers": "h:1", "subscribe": "t,u", **given}, "stream").gone
    assert found == meant


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"goneData": "ignore"}, "goneData: 'ignore' is no policy; use fail, skip"),
        ({"goneData": "{}"}, "goneData: '{}' is no policy by topic"),
        ({"goneData": '{"t":"ignore"}'}, "is no policy by topic"),
        ({"goneData": '{"u":"skip"}'}, "goneData: the query does not read topic 'u'"),
        ({"goneData": "skip", "failOnDataLoss": "true"}, "is not what failOnDataLoss says"),
        ({"goneData": "fail", "failOnDataLoss": "false"}, "is not what failOnDataLoss says"),
        ({"goneData": "reset", "startingTimestamp": "7"}, "reset needs startingOffsets"),
        ({"goneData": '{"t":"reset"}', "startingOffsets": '{"t":{"0":1}}'}, "reset needs"),
    ],
)
def test_a_policy_that_is_none_is_refused(given: dict[str, str], words: str) -> None:
    options = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", **given}
    with pytest.raises(OptionError, match=words):
        parse(options, "stream")
    with pytest.raises(OptionError, match="goneData: a batch query is not reset"):
        parse({**options, "goneData": "reset", "failOnDataLoss": "false"}, "batch")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("startingOffsets", '{"a":{"0":9223372036854775808}}', "9223372036854775808 is no offset"),
        ("startingOffsets", '{"a":{"2147483648":0}}', "'2147483648' is no partition"),
        ("startingOffsets", '{"a":{"00":0}}', "'00' is no partition"),
        ("startingOffsets", f'{{"a":{{"{"9" * 5_000}":0}}}}', "is no partition"),
        ("startingOffsets", f'{{"a":{{"0":{"9" * 5_000}}}}}', "not JSON: "),
        ("startingOffsets", '{"a":{"0":1},"a":{"1":1}}', "not JSON: 'a' is there twice"),
        ("startingOffsetsByTimestamp", '{"a":{"0":1,"0":2}}', "not JSON: '0' is there twice"),
        ("assign", '{"a":[0],"a":[1]}', "not JSON: 'a' is there twice"),
        ("assign", '{"a":[2147483648]}', "is not of the form"),
        ("goneData", '{"a":"skip","a":"fail"}', "is no policy"),
    ],
)  # fmt: skip
def test_numbers_beyond_kafka_s_and_names_twice_are_refused(
    name: str, value: str, said: str
) -> None:
    """The last of two would count, and the partitions of the first be read by nobody."""
    given = {**(OTHER if name == "assign" else GOOD), name: value}
    with pytest.raises(OptionError, match=f"^{name}: ") as refused:
        parse(given, "stream")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("groupIdPrefix", "\0", "groupIdPrefix: has a character that no name has"),
        ("kafka.group.id", "a\0b", "kafka.group.id: has a character that no name has"),
        ("subscribe", "t\0", "subscribe: has a character that no name has"),
        ("fetchOffset.retryIntervalMs", "9" * 17, "fetchOffset.retryIntervalMs: .* 2147483647"),
    ],
)
def test_what_would_end_the_process_is_refused(name: str, value: str, said: str) -> None:
    """C takes a NUL for the end: librdkafka was left without a group, and aborted."""
    named = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
    with pytest.raises(OptionError, match=said):
        parse(named | {name: value}, "stream")
