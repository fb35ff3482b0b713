"""Weights from files: all or nothing (public bugs P07, P08)."""

import argparse
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.config.recipe import Model
from attndrop_repro.models import PixelModel, build, load_weights, read_weights, start_from
from attndrop_repro.models.weights import content_hash


def made(classes: int = 3, size: int = 8, depth: int = 1, seed: int = 0) -> PixelModel:
    args = {"patch_size": 2, "embed_dim": 16, "depth": depth, "num_heads": 2}
    return build(
        Model(name="vit_tiny_patch16_224", args=args), classes=[str(i) for i in range(classes)],
        image_size=size, channels=1, mean=(0.5,), std=(0.5,), seed=seed,
    ).eval()  # fmt: skip


def same(model: PixelModel, weights: dict[str, torch.Tensor]) -> bool:
    own = model.network.state_dict()
    return all(torch.equal(own[name], weights[name]) for name in own)


@pytest.mark.parametrize("prefix", ["", "module.", "model.", "module.network.", "_orig_mod."])
@pytest.mark.parametrize("wrap", [None, "state_dict", "model"])
def test_training_scripts_wrappings_are_taken_off(
    tmp_path: Path, prefix: str, wrap: str | None
) -> None:
    weights = made(seed=1).network.state_dict()
    content: Any = {prefix + name: value for name, value in weights.items()}
    torch.save({wrap: content, "epoch": 3} if wrap else content, tmp_path / "w.pth")
    model = made()
    assert load_weights(model, read_weights(tmp_path / "w.pth")) == []
    assert same(model, weights)


def test_safetensors(tmp_path: Path) -> None:
    weights = made(seed=1).network.state_dict()
    save_file(weights, tmp_path / "w.safetensors")
    model = made()
    load_weights(model, read_weights(tmp_path / "w.safetensors"))
    assert same(model, weights)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda w: w.pop("norm.weight"), "without norm.weight"),
        (lambda w: w.update(extra=torch.zeros(1)), "with extra"),
        (lambda w: w.update({"norm.bias": torch.zeros(17)}), "norm.bias is"),
    ],
)
def test_a_part_is_never_enough(change: Any, words: str) -> None:
    weights = dict(made(seed=1).network.state_dict())
    change(weights)
    model = made()
    before = {name: value.clone() for name, value in model.network.state_dict().items()}
    with pytest.raises(AttndropError, match=words):
        load_weights(model, weights)
    assert same(model, before)


def test_other_classes_are_refused_or_get_a_new_head() -> None:
    weights = made(10, seed=1).network.state_dict()
    with pytest.raises(AttndropError, match="10 classes, the data have 3"):
        load_weights(made(3), weights)
    model, fresh = made(3), made(3).network.state_dict()
    (note,) = load_weights(model, weights, new_head=True)
    assert "new" in note
    assert torch.equal(model.network.head.weight, fresh["head.weight"])
    assert torch.equal(model.network.norm.weight, weights["norm.weight"])


def test_another_image_size_is_resampled_and_said() -> None:
    from timm.layers import resample_abs_pos_embed

    weights = made(size=8, seed=1).network.state_dict()
    model = made(size=16)
    (note,) = load_weights(model, weights)
    assert "resampled" in note
    expected = resample_abs_pos_embed(weights["pos_embed"], [8, 8], num_prefix_tokens=1)
    assert torch.equal(model.network.pos_embed, expected)


class Touch:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


def test_no_code_runs(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    torch.save({"state_dict": made().network.state_dict(), "x": Touch(marker)}, tmp_path / "w.pth")
    (tmp_path / "p.pth").write_bytes(pickle.dumps(Touch(marker)))
    for name in ("w.pth", "p.pth"):
        with pytest.raises(AttndropError, match=name) as caught:
            read_weights(tmp_path / name)
        assert "\n" not in str(caught.value)
    assert not marker.exists()


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
def test_damaged_absent_and_empty(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with pytest.raises(AttndropError, match="no file"):
        read_weights(path)
    if name.endswith("pth"):
        torch.save(made().network.state_dict(), path)
    else:
        save_file(made().network.state_dict(), path)
    content = path.read_bytes()
    for kept in (content[:-100], content[:10], b""):
        path.write_bytes(kept)
        with pytest.raises(AttndropError, match=r"w\."):
            read_weights(path)
    torch.save({"epoch": 3}, tmp_path / "e.pth")
    with pytest.raises(AttndropError, match="no state dict"):
        read_weights(tmp_path / "e.pth")


def test_fine_tuning_wants_the_file_it_was_told_of(tmp_path: Path) -> None:
    path = tmp_path / "w.pth"
    torch.save(made(10, seed=1).network.state_dict(), path)
    start_from(made(), path, content_hash(path))
    with pytest.raises(AttndropError, match="has changed"):
        start_from(made(), path, "0" * 64)


def test_the_refusal_of_a_pickle_advises_nothing_unsafe(tmp_path: Path) -> None:
    torch.save({"model": Touch(tmp_path / "marker")}, tmp_path / "p.pt")
    with pytest.raises(AttndropError, match="could run code") as error:
        read_weights(tmp_path / "p.pt")
    assert "weights_only" not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"args": argparse.Namespace(p=1)}, "it holds argparse.Namespace"),
        ({"model": nn.Linear(2, 2)}, "it holds torch.nn.modules.linear.Linear"),
    ],
)  # fmt: skip
def test_what_a_refused_pickle_holds_is_named(tmp_path: Path, content: Any, told: str) -> None:
    torch.save(content, tmp_path / "p.pt")
    with pytest.raises(AttndropError, match=told) as error:
        read_weights(tmp_path / "p.pt")
    for advice in ("add_safe_globals", "allowlist", "torch.serialization"):
        assert advice not in str(error.value)


def test_nothing_but_our_line_is_said_of_a_foreign_file(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    (tmp_path / "a.pt").write_bytes(pickle.dumps(Touch(tmp_path / "marker"), protocol=4))
    (tmp_path / "b.pt").write_bytes(b"hello")
    for name in "ab":
        with pytest.raises(AttndropError):
            read_weights(tmp_path / f"{name}.pt")
    with pytest.raises(AttndropError, match=r"b\.pt is damaged, or no file that torch saved$"):
        read_weights(tmp_path / "b.pt")
    assert not list(recwarn)


def test_all_that_is_missing_is_listed_up_to_a_dozen() -> None:
    model = made(depth=2)
    weights = dict(model.network.state_dict())
    lost = [name for name in weights if name.startswith("blocks.1.mlp")]
    kept = {name: value for name, value in weights.items() if name not in lost}
    with pytest.raises(AttndropError) as error:
        load_weights(model, kept)
    assert all(name in str(error.value) for name in lost)
    with pytest.raises(AttndropError, match=r" and \d+ more$"):
        load_weights(model, {"pos_embed": weights["pos_embed"]})
