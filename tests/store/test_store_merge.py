"""Merging stores: copying, again and again, and what is refused."""

import json
import shutil

import pytest

from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.store.compact import compact, remove_rows
from attndrop_repro.store.logits import save_logits
from attndrop_repro.store.merge import merge
from attndrop_repro.store.store import Store
from attndrop_repro.store.verify import verify


def fill(store, run_id, numbers):
    for n in numbers:
        store.write(run_id, [{"metric": "accuracy", "value": n / 8, "n": n}])


def rows(store):
    frame = Store(store.root).frame(dedupe=False)
    return sorted(zip(frame["seed"], frame["n"], strict=True))


def files(store):
    return {path: path.stat().st_mtime_ns for path in store.root.rglob("*") if path.is_file()}


def test_stores_of_two_machines_into_a_new_one(make, tmp_path):
    one, first = make("one", seed=0)
    two, second = make("two", seed=1)
    fill(one, first, [0, 1])
    fill(two, second, [2])
    target = Store(tmp_path / "target")
    done = merge(target, [one, two])
    assert (done.files, done.runs, done.replaced, done.notes) == (3, 2, 0, [])
    assert rows(target) == [(0, 0), (0, 1), (1, 2)]
    assert {info.run_id for info in target.runs()} == {first, second}
    assert verify(target) == []


def test_again_changes_nothing(make, tmp_path):
    one, first = make("one")
    fill(one, first, [0, 1])
    target = Store(tmp_path / "target")
    merge(target, [one])
    before = files(target)
    done = merge(target, [one, one])
    assert (done.files, done.runs, done.replaced) == (0, 0, 0)
    assert files(target) == before


@pytest.mark.parametrize("which", ["source", "target", "both"])
def test_overlapping_stores_whether_compacted_or_not(make, tmp_path, which):
    one, first = make("one")
    fill(one, first, [0, 1, 2])
    two = Store(tmp_path / "two")
    shutil.copytree(one.root, two.root)
    fill(one, first, [3])
    fill(two, first, [4])
    if which in ("source", "both"):
        compact(two)
    if which in ("target", "both"):
        compact(one)
    for _ in range(2):
        merge(one, [two])
        assert rows(one) == [(0, n) for n in range(5)]
    merge(two, [one])
    assert rows(two) == rows(one)


def test_what_was_removed_here_does_not_come_back(make, tmp_path):
    one, first = make("one")
    fill(one, first, [0, 1])
    two = Store(tmp_path / "two")
    shutil.copytree(one.root, two.root)
    remove_rows(one, first)
    merge(one, [two])
    assert rows(one) == []


def test_one_name_for_two_runs_is_refused_and_nothing_changes(make, tmp_path):
    one, first = make("one")
    two, second = make("two", seed=1)
    fill(two, second, [0])
    # A copy of the first run whose recipe somebody edited.
    shutil.copytree(one.run_dir(first).path, two.run_dir(first).path)
    path = two.run_dir(first).path / "spec.json"
    content = json.loads(path.read_text())
    content["recipe"]["training"]["epochs"] = 99
    path.write_text(json.dumps(content))
    before = files(one)
    with pytest.raises(AttndropError) as error:
        merge(one, [two])
    assert first in str(error.value)
    assert "config_hash" in str(error.value) or "specification" in str(error.value)
    assert files(one) == before


def test_damaged_sources_are_named_and_nothing_changes(make, tmp_path):
    one, first = make("one")
    fill(one, first, [0])
    (path,) = one.measurements.iterdir()
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    target = Store(tmp_path / "target")
    with pytest.raises(AttndropError, match=path.name):
        merge(target, [one])
    assert not target.root.exists()


@pytest.mark.parametrize(
    ("here", "there", "epoch"),
    [("interrupted", "finished", 4), ("finished", "interrupted", 2), ("failed", "interrupted", 4)],
)
def test_a_run_comes_from_where_it_got_further(make, here, there, epoch):
    one, run_id = make("one")
    two, _ = make("two")
    one.run_dir(run_id).set_status(here, epoch=2)
    two.run_dir(run_id).set_status(there, epoch=4)
    merge(one, [two])
    assert one.run_dir(run_id).status()["epoch"] == epoch
    assert two.run_dir(run_id).status()["epoch"] == 4
    assert [path.name for path in (one.root / "runs").iterdir()] == [run_id]


def test_a_run_that_is_running_here_is_left_alone(make):
    one, run_id = make("one")
    two, _ = make("two")
    two.run_dir(run_id).set_status("finished", epoch=4)
    done = merge(one, [two])
    assert one.run_dir(run_id).state() == "running"
    assert run_id in done.notes[0]


def test_logits_that_lack_are_taken_over(make):
    one, run_id = make("one")
    two, _ = make("two")
    for store in (one, two):
        store.run_dir(run_id).set_status("finished", epoch=4)
    save_logits(two.run_dir(run_id).logits("test"), [[0.0, 1.0]], [1], [0])
    merge(one, [two])
    assert one.run_dir(run_id).logits("test").is_file()
    assert verify(one) == []


def test_sources_that_are_none(make, tmp_path):
    one, _ = make("one")
    (tmp_path / "empty").mkdir()
    for source, words in [
        ("nowhere", "is not there"),
        ("empty", "is no results store"),
        ("one", "into itself"),
    ]:
        with pytest.raises(UsageError, match=words):
            merge(one, [Store(tmp_path / source)])
