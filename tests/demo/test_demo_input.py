"""Goal: every line of a user's file is an event, or is kept aside with a reason; none is dropped.

Method: small files of each kind, well formed and not.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast import cli
from holdfast.lab.demo import user_file
from holdfast.lab.demo.events import line_record
from holdfast.lab.demo.user_file import InputError, Line, LinesDigest, Malformed, format_of


def read(path: Path, key: str | None = None) -> list[Line | Malformed]:
    return list(user_file.read(path, key))


def reasons(path: Path, key: str | None = None) -> dict[int, str]:
    return {x.number: x.reason for x in read(path, key) if isinstance(x, Malformed)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "input.jsonl"


def test_json_lines_keep_text_number_and_key(file: Path) -> None:
    file.write_bytes(b'\xef\xbb\xbf{"a": "x"}\r\n\n  {"a": 7}\n{"a": null}')
    assert read(file, "a") == [
        Line(1, '{"a": "x"}', "x"),
        Line(3, '  {"a": 7}', "7"),
        Line(4, '{"a": null}', "null"),
    ]
    assert [x.key for x in read(file) if isinstance(x, Line)] == [None] * 3


def test_malformed_json_is_told_with_its_reason(file: Path) -> None:
    file.write_bytes(b'{"a": 1}\n{"a": \n[1]\n{"b": 2}\n\xff\n{"a": "\\ud800"}\n"a\0b"\n')
    found = reasons(file, "a")
    assert sorted(found) == [2, 3, 4, 5, 6, 7]
    assert found[2].startswith("not JSON")
    assert found[3] == "no object, so it has no field 'a'"
    assert found[4] == "no field 'a'"
    assert found[5] == "not UTF-8 at byte 0"
    assert "UTF-8" in found[6]
    assert found[7] == "has a NUL byte"


def test_csv_needs_as_many_fields_as_its_header(tmp_path: Path) -> None:
    file = tmp_path / "input.csv"
    file.write_text('id,name\n1,Ada\n2,"Grace, H."\n3\n4,a,b\n5,"open\n6,"ok"\n')
    assert [x for x in read(file, "name") if isinstance(x, Line)] == [
        Line(2, "1,Ada", "Ada"),
        Line(3, '2,"Grace, H."', "Grace, H."),
        Line(7, '6,"ok"', "ok"),
    ]
    found = reasons(file)
    assert found[4] == "1 fields, the header has 2"
    assert found[5] == "3 fields, the header has 2"
    assert found[6].startswith("not CSV")
    with pytest.raises(InputError, match="no such column; it has id, name"):
        read(file, "nome")


def test_a_line_that_is_too_long_is_kept_aside_and_not_in_memory(file: Path) -> None:
    long = b'"' + b"x" * (3 * user_file.LINE_BYTES_MAX) + b'"'
    file.write_bytes(b'"a"\n' + long + b'\n"b"\n')
    first, second, third = read(file)
    assert (first, third) == (Line(1, '"a"', None), Line(3, '"b"', None))
    assert isinstance(second, Malformed)
    assert len(second.raw) == user_file.LINE_BYTES_MAX


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'"' + b'\\"' * 420_000 + b'"', "its event has 1,680,"),
        (b'{"k": "' + b"\\t" * 400_000 + b'"}', "its event has 1,200,"),
        ('{"k": "' + "ö" * 400_000 + '"}', None),
        (b'{"k": "' + b"x" * (user_file.EVENT_BYTES_MAX - 200) + b'"}', None),
        (b'{"k": "' + b"x" * (user_file.EVENT_BYTES_MAX - 20) + b'"}', "its event has 990,0"),
    ],
    ids=["840 KB of quotes", "tabs", "two bytes a letter", "fits", "does not quite fit"],
)
def test_an_event_is_measured_as_it_is_sent(
    file: Path, line: bytes | str, reason: str | None
) -> None:
    """Goal: what no record can take is set aside before anything runs.

    Method: lines that grow when they are put into JSON, and some that are as long as can be.
    """
    file.write_bytes(b'{"k": 1}\n' + (line.encode() if isinstance(line, str) else line) + b"\n")
    found = read(file)[1]
    if reason is None:
        assert isinstance(found, Line)
        value = line_record(found.number, found.text, found.key, partitions=3).value
        assert len(value) <= user_file.EVENT_BYTES_MAX < 1_000_000  # librdkafka's default
        return
    assert isinstance(found, Malformed)
    assert found.number == 2
    assert found.reason.startswith(reason)


def test_a_key_is_measured_too(file: Path) -> None:
    """A key stands in each line of the history that tells of its event."""
    small, large = "x" * user_file.KEY_BYTES_MAX, "x" * (user_file.KEY_BYTES_MAX + 1)
    full = "y" * (user_file.EVENT_BYTES_MAX - len(small) - 200)  # fits without its key
    rows = [json.dumps({"k": key}) for key in (small, large, "a\0b")]
    rows.append(json.dumps({"k": small, "more": full}))
    file.write_text("\n".join(rows))
    assert isinstance(read(file, "k")[0], Line)
    found = reasons(file, "k")
    assert found[2] == "its key has 16,385 bytes; at most 16,384 are taken"
    assert found[3] == "field 'k' has a NUL character"
    assert found[4].startswith("its event has 1,006,")
    assert 4 not in reasons(file)


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.csv", b"{", "csv"), ("a.JSONL", b"a,b", "json"), ("a", b' \n{"a":1}', "json"),
        ("a.txt", b"a,b\n", "csv"), ("a.dat", b"\xef\xbb\xbf[1]", "json"),
    ],
)  # fmt: skip
def test_the_format_is_told_by_name_or_content(
    tmp_path: Path, name: str, content: bytes, kind: str
) -> None:
    (tmp_path / name).write_bytes(content)
    assert format_of(tmp_path / name) == kind


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        format_of(tmp_path / "nothing")
    with pytest.raises(InputError, match="it is no file"):
        format_of(tmp_path)


def test_the_summary_counts_digests_and_keeps_aside(file: Path, tmp_path: Path) -> None:
    file.write_text('{"a":1}\nnonsense\n{"a":2}\n')
    aside = tmp_path / "malformed.jsonl"
    summary = user_file.summarise(file, None, aside)
    digest = LinesDigest()
    digest.add(1, None, '{"a":1}')
    digest.add(3, None, '{"a":2}')
    assert (summary.well_formed, summary.malformed) == (2, 1)
    assert summary.sha256 == digest.hex()
    kept = json.loads(aside.read_text())
    assert (kept["line"], kept["text"]) == (2, "nonsense")


def test_a_refusal_leaves_no_directory_behind(tmp_path: Path) -> None:
    """An empty input has nothing to keep aside; malformed lines are kept to be looked at."""
    file, output = tmp_path / "input.jsonl", tmp_path / "run"
    for text, kept in (("", False), ("no JSON\n", True)):
        file.write_text(text)
        assert cli.run(["demo", "--input", str(file), "--output", str(output)]) == 2
        assert output.exists() == kept
