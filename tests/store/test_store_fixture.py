"""A store of the first layout: whatever version reads it later must say the same.

Never regenerate `fixture_v1`; a new layout gets a fixture of its own beside it.
"""

import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch

from attndrop_repro.store import checkpoint
from attndrop_repro.store.compact import compact
from attndrop_repro.store.logits import load_logits
from attndrop_repro.store.merge import merge
from attndrop_repro.store.store import Store
from attndrop_repro.store.verify import verify

RUN = "tiny--attentiondrop-blur+consistency--s7--e8a3ae97"


@pytest.fixture
def store(tmp_path):
    shutil.copytree(Path(__file__).parent / "fixture_v1", tmp_path / "v1")
    return Store(tmp_path / "v1")


def check_rows(store: Store) -> None:
    frame = store.frame()
    assert frame["value"].tolist() == [0.75, 0.25, 0.125]
    assert store.frame(dedupe=False)["value"].tolist() == [0.5, 0.75, 0.25, 0.125]
    accuracy, robust, outside = frame.to_dict("records")
    assert accuracy["run_id"] == robust["run_id"] == RUN
    assert (accuracy["suite"], accuracy["n"], accuracy["epoch"]) == ("digits", 450, 2)
    assert pd.isna(accuracy["eps"])
    assert (robust["eps_label"], robust["eps"]) == ("8/255", 8 / 255)
    assert robust["detail"] == '{"audit": {"largest": 0.031}, "empty": null}'
    assert (robust["p"], robust["w"], robust["sigma_max"], robust["lam"]) == (0.3, 3, 0.5, 1.0)
    assert (outside["run_id"], outside["model"]) == ("outside--0012", "12e45678")
    assert (outside["method"], outside["dataset"]) == ("none", "nan")


def test_rows(store):
    check_rows(store)


def test_it_is_healthy(store):
    assert verify(store) == []


def test_runs(store):
    (info,) = store.runs()
    assert (info.run_id, info.status, info.epoch, info.best) == (RUN, "finished", 2, 0.75)
    assert info.spec is not None
    assert info.spec.run_id == RUN  # the same hash, so it is found and not trained again
    assert info.spec.recipe.evaluation.attack.eps == ("8/255", 0.031)
    assert store.run_dir(RUN).history()[1]["train_loss"] == 0.1 + 0.2
    assert store.run_dir(RUN).provenance()["code_version"] == "0.1.0"


def test_checkpoint_and_logits(store):
    run = store.run_dir(RUN)
    tensors, state = checkpoint.load(checkpoint.latest(run.checkpoints).path)
    assert state == {"step": 2, "big": 2**80 + 1}
    assert torch.equal(tensors["model/w"], torch.tensor([1.5, -0.0]))
    assert torch.equal(tensors["rng/s"], torch.tensor([1, 2], dtype=torch.uint8))
    assert torch.equal(tensors["half"], torch.tensor(0.5, dtype=torch.bfloat16))
    assert load_logits(run.logits("test")).logits.tolist() == [[0.5, 1.5]]


def test_it_can_be_added_to_compacted_and_merged(store, tmp_path):
    target = Store(tmp_path / "target")
    merge(target, [store])
    check_rows(target)
    compact(store)
    check_rows(store)
    merge(target, [store])
    check_rows(target)
    store.write(RUN, [{"metric": "ece", "value": 0.5}])
    assert store.has(RUN, "ece")
