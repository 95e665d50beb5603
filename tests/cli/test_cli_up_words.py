"""What `holdfast up` says of a cluster before it runs. Nothing is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli.local.up import _announce
from holdfast.cluster import LocalCluster


@pytest.mark.parametrize(
    ("controllers", "note"),
    [
        (1, None),
        (2, "2 controllers survive no more failures than 1 do"),
        (3, None),
        (4, "4 controllers survive no more failures than 3 do"),
    ],
)
def test_an_even_number_of_controllers_is_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], controllers: int, note: str | None
) -> None:
    cluster = LocalCluster.create(tmp_path / "c", brokers=1, controllers=controllers, port=0)
    _announce(cluster, new=True)
    notes = [line for line in capsys.readouterr().out.splitlines() if "survive" in line]
    assert [line.split(None, 1)[1] for line in notes] == ([] if note is None else [note])
