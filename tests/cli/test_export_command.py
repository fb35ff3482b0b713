"""`export`: what it writes is what timm loads, and what the run itself computes."""

from __future__ import annotations

import timm
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from attndrop_repro.store import Store
from attndrop_repro.training.restore import load_run


def test_timm_loads_it_whole_and_computes_the_same(cli, store, tmp_path):
    out = tmp_path / "model.safetensors"
    ran = cli("export", "--run", "last", "--out", str(out))
    assert ran.code == 0, ran.err
    assert ran.out.strip() == str(out)
    run_id = Store("results").find_run("last").run_id
    subject = load_run(Store("results"), run_id)
    model = timm.create_model(
        "vit_tiny_patch16_224", num_classes=10, img_size=8, in_chans=1, patch_size=4, embed_dim=8,
        depth=1, num_heads=2, mlp_ratio=1,
    ).eval()  # fmt: skip
    model.load_state_dict(load_file(out))
    pixels = subject.splits.test.pixels(slice(0, 5))
    normalised = (pixels - subject.model.mean) / subject.model.std
    with torch.no_grad():
        assert torch.equal(model(normalised), subject.model(pixels))
    with safe_open(out, "pt") as file:
        assert file.metadata()["run_id"] == run_id


def test_a_snapshot_differs_from_the_final_weights(cli, store, tmp_path):
    for name, extra in (("a", ()), ("b", ("--epoch", "0"))):
        assert cli("export", "--run", "last", "--out", str(tmp_path / name), *extra).code == 0
    assert (tmp_path / "a").read_bytes() != (tmp_path / "b").read_bytes()


def test_it_overwrites_nothing_and_says_what_is_missing(cli, store, tmp_path):
    out = tmp_path / "mine"
    out.write_text("precious")
    ran = cli("export", "--run", "last", "--out", str(out))
    assert ran.code == 1
    assert "exists" in ran.err
    assert out.read_text() == "precious"
    ran = cli("export", "--run", "last", "--out", str(tmp_path / "new"), "--epoch", "1")
    assert ran.code == 1
    assert "kept no weights of epoch 1" in ran.err
    assert not (tmp_path / "new").exists()
