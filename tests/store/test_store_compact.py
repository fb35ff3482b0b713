"""Compaction and removal: nothing lost, nothing counted twice, whenever one is killed."""

import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attndrop_repro.store import compact as module
from attndrop_repro.store.compact import compact, remove_rows
from attndrop_repro.store.store import Store
from attndrop_repro.store.verify import verify


def fill(store, run_id, start, count):
    for n in range(start, start + count):
        store.write(run_id, [{"metric": "accuracy", "value": n / 8, "n": n}])


def rows(store):
    return sorted(Store(store.root).frame(dedupe=False)["n"].tolist())


def test_many_files_become_one_with_the_same_rows(make):
    store, run_id = make()
    fill(store, run_id, 0, 6)
    before = store.frame()
    assert compact(store) == 6
    assert len(list(store.measurements.iterdir())) == len(list(store.receipts.iterdir())) == 1
    after = Store(store.root).frame()
    assert after.equals(before)
    assert compact(store) == 0
    fill(store, run_id, 6, 2)
    assert compact(store) == 3
    assert rows(store) == list(range(8))
    assert verify(store) == []


def test_nothing_to_compact(tmp_path, make):
    assert compact(Store(tmp_path / "none")) == 0
    store, run_id = make()
    fill(store, run_id, 0, 1)
    assert compact(store) == 0


def test_killed_before_anything_is_deleted(make, monkeypatch):
    store, run_id = make()
    fill(store, run_id, 0, 4)
    monkeypatch.setattr(module, "_delete", lambda *args: None)
    compact(store)
    assert len(list(store.measurements.iterdir())) == 5
    assert rows(store) == [0, 1, 2, 3]
    compact(store)  # again killed: two compacted files that hold the same
    assert rows(store) == [0, 1, 2, 3]
    monkeypatch.undo()
    compact(store)
    assert rows(store) == [0, 1, 2, 3]
    assert len(list(store.measurements.iterdir())) == 1
    assert verify(store) == []


def test_two_compactions_that_overlap(make, tmp_path):
    store, run_id = make()
    fill(store, run_id, 0, 4)
    other = Store(tmp_path / "other")
    shutil.copytree(store.root, other.root)
    fill(other, run_id, 4, 2)
    compact(store)
    compact(other)
    for path in other.measurements.iterdir():  # as if both had run in one folder
        shutil.copy(path, store.measurements)
    assert rows(store) == list(range(6))
    compact(store)
    assert rows(store) == list(range(6))


def test_a_replaced_file_that_comes_back_counts_once(make, tmp_path):
    store, run_id = make()
    fill(store, run_id, 0, 3)
    shutil.copytree(store.measurements, tmp_path / "backup")
    compact(store)
    for path in (tmp_path / "backup").iterdir():
        shutil.copy(path, store.measurements)
    assert rows(store) == [0, 1, 2]


@pytest.mark.parametrize("compacted", [False, True])
def test_removed_rows_stay_away(make, tmp_path, compacted):
    store, run_id = make()
    fill(store, run_id, 0, 3)
    store.write_outside({"model": "m"}, [{"metric": "accuracy", "value": 1.0, "n": 99}])
    shutil.copytree(store.measurements, tmp_path / "backup")
    if compacted:
        compact(store)
    assert remove_rows(store, run_id) == 3
    assert rows(store) == [99]
    for path in (tmp_path / "backup").iterdir():  # a merge brings them back
        if not (store.measurements / path.name).exists():
            shutil.copy(path, store.measurements)
    assert rows(store) == [99]
    compact(store)
    assert rows(store) == [99]
    fill(store, run_id, 5, 1)  # the run is made again
    assert rows(store) == [5, 99]
    assert remove_rows(store, "other") == 0


def test_remove_run_takes_rows_and_folder(make):
    store, run_id = make()
    fill(store, run_id, 0, 2)
    store.remove_run(run_id)
    assert len(store.frame()) == 0
    assert store.runs() == []
    assert not store.run_dir(run_id).path.exists()
    assert verify(store) == []


@settings(max_examples=15, deadline=None)
@given(
    actions=st.lists(st.sampled_from(["write", "compact", "crash", "return", "remove"]), max_size=9)
)
def test_any_order_of_events_keeps_every_row_once(tmp_path_factory, actions):
    root = tmp_path_factory.mktemp("any") / "store"
    attic = root.parent / "attic"
    attic.mkdir()
    store, written, removed = Store(root), set(), set()
    for n, action in enumerate(actions):
        if action == "write":
            name = f"outside--{n % 2}"
            store.write_outside(
                {"run_id": name, "model": "m"}, [{"metric": "a", "value": 0.0, "n": n}]
            )
            written.add((name, n))
        elif action == "remove":
            remove_rows(store, "outside--0")
            removed |= {row for row in written if row[0] == "outside--0"}
        elif action == "return":
            for path in attic.iterdir():
                shutil.copy(path, store.measurements)
        else:
            if root.exists():
                for path in store.measurements.iterdir():
                    shutil.copy(path, attic)
            with pytest.MonkeyPatch.context() as patch:
                if action == "crash":
                    patch.setattr(module, "_delete", lambda *args: None)
                compact(store)
    frame = Store(root).frame(dedupe=False)
    found = sorted(zip(frame["run_id"], frame["n"], strict=True))
    assert found == sorted(written - removed)
