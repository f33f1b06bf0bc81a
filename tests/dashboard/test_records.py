"""Records are read on from where they were, whatever happens to the file."""

from __future__ import annotations

import json
import os

import numpy as np
from folders import append, make_run, record

from weft.dashboard import records as reading
from weft.dashboard.records import Records


def steps(records):
    return records.columns("env_steps")[0].tolist()


def test_only_what_was_appended_is_read(tmp_path, monkeypatch):
    folder = make_run(tmp_path, "run", rows=5)
    records = Records(folder / "metrics.jsonl")
    assert records.refresh()
    assert not records.refresh()
    taken = []
    monkeypatch.setattr(records, "_take", lambda lines, take=records._take: (taken.append(lines), take(lines)))
    append(folder, [record(60)])
    assert records.refresh()
    assert len(taken) == 1
    assert json.loads(taken[0]) == record(60)
    assert steps(records) == [10, 20, 30, 40, 50, 60]


def test_a_line_that_is_not_whole_waits(tmp_path):
    folder = make_run(tmp_path, "run", rows=1)
    records = Records(folder / "metrics.jsonl")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"env_steps": 20, ')
        file.flush()
        records.refresh()
        assert steps(records) == [10]
        file.write('"return_mean": 1.0}\n')
    records.refresh()
    assert steps(records) == [10, 20]


def test_a_damaged_line_is_left_out(tmp_path):
    folder = make_run(tmp_path, "run", rows=1)
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(b'no json\n[1, 2]\n\xff\xfe\n{"env_steps": 30}\n{"env_steps": "many", "return_mean": null}\n')
    records = Records(folder / "metrics.jsonl")
    records.refresh()
    found = records.columns("env_steps", "return_mean")
    np.testing.assert_array_equal(found[0], [10, 30, np.nan])
    np.testing.assert_array_equal(found[1], [5, np.nan, np.nan])


def test_a_file_that_was_cut_and_written_on_is_read_anew(tmp_path):
    """As a run does that goes back to a checkpoint: the same length again would hide it, so its end is compared."""
    folder = make_run(tmp_path, "run", rows=9)
    path = folder / "metrics.jsonl"
    records = Records(path)
    records.refresh()
    with path.open("r+b") as file:
        lines = file.readlines()
        file.truncate(len(b"".join(lines[:4])))
    append(folder, [record(k) | {"return_mean": 99.0} for k in (50, 60, 70, 80, 90)])
    assert path.stat().st_size == len(b"".join(lines))
    records.refresh()
    assert records.columns("return_mean")[0].tolist() == [5, 10, 15, 20, 99, 99, 99, 99, 99]


def test_a_file_that_was_replaced_is_read_anew(tmp_path):
    folder = make_run(tmp_path, "run", rows=3)
    path = folder / "metrics.jsonl"
    records = Records(path)
    records.refresh()
    (folder / "new").write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:1]))
    os.replace(folder / "new", path)
    assert records.refresh()
    assert steps(records) == [10]
    path.unlink()
    records.refresh()
    assert records.rows == 0


def test_a_large_file_is_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "CHUNK", 256)
    folder = make_run(tmp_path, "run", rows=50)
    records = Records(folder / "metrics.jsonl")
    shares = []
    while records.refresh(budget=512):
        shares.append(records.share)
    assert shares == sorted(shares)
    assert shares[0] < 0.5
    assert shares[-1] == 1.0
    assert steps(records) == [10.0 * (k + 1) for k in range(50)]


def test_a_metric_that_comes_later_is_empty_before(tmp_path):
    folder = make_run(tmp_path, "run", rows=2)
    append(folder, [record(30, **{"eval/return_mean": 7.0})])
    records = Records(folder / "metrics.jsonl")
    records.refresh()
    np.testing.assert_array_equal(records.columns("eval/return_mean")[0], [np.nan, np.nan, 7.0])


def test_neither_links_nor_pipes_are_read(tmp_path):
    folder = make_run(tmp_path, "run", rows=2)
    (folder / "link.jsonl").symlink_to(folder / "metrics.jsonl")
    os.mkfifo(folder / "pipe.jsonl")
    for name in ("link.jsonl", "pipe.jsonl"):
        records = Records(folder / name)
        records.refresh()
        assert records.rows == 0
