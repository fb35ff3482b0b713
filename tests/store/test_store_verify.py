"""What verify finds: flipped bytes, lost files, foreign files, contradictions."""

import json

import pytest
import torch

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.store import checkpoint
from attndrop_repro.store.logits import save_logits
from attndrop_repro.store.store import Store
from attndrop_repro.store.verify import verify


@pytest.fixture
def store(make):
    store, run_id = make()
    run = store.run_dir(run_id)
    for n in range(2):
        store.write(run_id, [{"metric": "accuracy", "value": 0.5, "n": n}])
    run.append_history({"epoch": 1})
    checkpoint.save(run.checkpoints, {"model/w": torch.ones(3)}, {"step": 1}, best=True)
    checkpoint.save_folder(run.snapshot(0), {"model/w": torch.ones(3)}, {"epoch": 0})
    checkpoint.save_folder(run.path / "weights", {"model/w": torch.ones(3)}, {"epoch": 4})
    save_logits(run.logits("test"), torch.ones(2, 3), [0, 1], [0, 1])
    return store


def kinds(store):
    return [finding.kind for finding in verify(store)]


def flip(path, position=None):
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if position is None else position] ^= 1
    path.write_bytes(content)


def test_a_healthy_store(store):
    assert verify(store) == []


@pytest.mark.parametrize(
    "pattern",
    [
        "measurements/*.parquet",
        "runs/*/spec.json",
        "runs/*/recipe.yaml",
        "runs/*/provenance.json",
        "runs/*/checkpoints/step-*/*",
        "runs/*/checkpoints/best-*/model.safetensors",
        "runs/*/snapshots/*/*",
        "runs/*/weights/*",
        "runs/*/logits/*",
    ],
)
def test_every_flipped_byte_is_found(store, pattern):
    for path in sorted(store.root.glob(pattern)):
        content = path.read_bytes()
        for position in range(0, len(content), max(1, len(content) // 20)):
            flip(path, position)
            assert "damaged" in kinds(store), (path, position)
            path.write_bytes(content)
    assert verify(store) == []


@pytest.mark.parametrize(
    ("pattern", "kind"),
    [
        ("measurements/*.parquet", "missing"),
        ("runs/*/recipe.yaml", "missing"),
        ("runs/*/provenance.json", "missing"),
        ("runs/*/checkpoints/step-*/model.safetensors", "damaged"),
        ("runs/*/checkpoints/step-*/manifest.json", "damaged"),
        ("runs/*/snapshots/*/state.json", "damaged"),
    ],
)
def test_every_missing_file_is_found(store, pattern, kind):
    path = sorted(store.root.glob(pattern))[0]
    path.unlink()
    (found,) = verify(store)
    assert found.kind == kind
    assert path.name in f"{found.path} {found.message}"
    assert not found.harmless


def test_a_run_without_its_folder(store):
    (path,) = (store.root / "runs").iterdir()
    path.rename(store.root.parent / "gone")
    assert kinds(store) == ["missing"]


@pytest.mark.parametrize("name", ["measurements/x.txt", "receipts/x", "runs/x.txt", "x.txt"])
def test_foreign_files_are_found_and_harmless(store, name):
    (store.root / name).write_text("hello")
    (found,) = verify(store)
    assert (found.kind, found.path, found.harmless) == ("foreign", name, True)


def test_what_killed_writers_left(store):
    (run,) = (store.root / "runs").iterdir()
    (store.measurements / ".tmp-999999999-ab-x").write_text("half")
    (run / "checkpoints" / ".tmp-999999999-ab-step").mkdir()
    (store.root / "runs" / ".tmp-999999999-ab-run").mkdir()
    assert kinds(store) == ["leftover"] * 3
    assert all(finding.harmless for finding in verify(store))


def test_rows_of_another_configuration(store):
    (run,) = (store.root / "runs").iterdir()
    columns = {**store.run_dir(run.name).spec().columns(), "config_hash": "0" * 12}
    store.write_outside(columns, [{"metric": "accuracy", "value": 1.0}])
    assert kinds(store) == ["contradiction"]


def test_a_folder_under_another_name(store):
    (run,) = (store.root / "runs").iterdir()
    run.rename(run.with_name("tiny--none--s9--00000000"))
    assert sorted(kinds(store)) == ["contradiction", "missing"]


def test_unreadable_state_and_history(store):
    (run,) = (store.root / "runs").iterdir()
    (run / "status.json").write_text("{")
    (run / "history.jsonl").write_text("{\n")
    assert kinds(store) == ["damaged", "damaged"]
    (info,) = store.runs()
    assert info.status == "damaged"


def test_a_checksum_list_that_is_damaged(store):
    (run,) = (store.root / "runs").iterdir()
    (run / "seal.json").write_text("[]")
    assert kinds(store) == ["damaged"]


def test_stores_that_hold_rows_and_provenance_only(store):
    (run,) = (store.root / "runs").iterdir()
    for name in ("status.json", "history.jsonl", "seal.json"):
        (run / name).unlink()
    for path in store.receipts.iterdir():
        path.unlink()
    assert verify(store) == []
    assert json.loads((run / "provenance.json").read_text()) == {"code_version": "0.1.0"}


def test_no_store(tmp_path):
    with pytest.raises(AttndropError, match="no results store"):
        verify(Store(tmp_path / "nowhere"))
