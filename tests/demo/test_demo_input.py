"""Goal: every line of a user's file is an event, or is kept aside with a reason; none is dropped.

Method: small files of each kind, well formed and not.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast import cli
from holdfast.lab import demo_input
from holdfast.lab.demo_input import InputError, Line, LinesDigest, Malformed, format_of


def read(path: Path, key: str | None = None) -> list[Line | Malformed]:
    return list(demo_input.read(path, key))


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
    long = b'"' + b"x" * (3 * demo_input.LINE_BYTES_MAX) + b'"'
    file.write_bytes(b'"a"\n' + long + b'\n"b"\n')
    first, second, third = read(file)
    assert (first, third) == (Line(1, '"a"', None), Line(3, '"b"', None))
    assert isinstance(second, Malformed)
    assert len(second.raw) == demo_input.LINE_BYTES_MAX


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
    summary = demo_input.summarise(file, None, aside)
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
