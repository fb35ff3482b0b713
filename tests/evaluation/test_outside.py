"""Models trained elsewhere: whole or an error, never a row of a part, never code (P07, P08)."""

from __future__ import annotations

import os
import pickle

import pytest
import torch
from safetensors.torch import save_file
from support import judged

from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.evaluation.attack_setting import grid
from attndrop_repro.evaluation.measure import measure
from attndrop_repro.evaluation.options import AttackOptions, GradvarOptions
from attndrop_repro.evaluation.outside import load_outside
from attndrop_repro.store import Store

NAME, ARGS = judged.MODEL.name, judged.MODEL.args


def weights():
    return {k: v.contiguous() for k, v in judged.trained().network.state_dict().items()}


def load(path, **options):
    return load_outside(NAME, path, "digits", **{"model_args": ARGS, **options})


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "model.", "module._orig_mod."])
@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_prefixes_and_formats(tmp_path, prefix, suffix):
    path = tmp_path / f"weights.{suffix}"
    content = {f"{prefix}{k}": v for k, v in weights().items()}
    if suffix == "pt":
        torch.save({"state_dict": content, "epoch": 3}, path)
    else:
        save_file(content, path)
    subject = load(path)
    x = judged.some(8).pixels(slice(None))
    with torch.no_grad():
        assert torch.equal(subject.model(x), judged.trained()(x))
    assert not subject.model.training


@pytest.mark.parametrize("kind", ["missing", "unexpected", "shape", "classes"])
def test_a_part_is_an_error(tmp_path, kind):
    content = weights()
    if kind == "missing":
        del content["blocks.1.mlp.fc1.weight"]
        said = r"blocks\.1\.mlp\.fc1\.weight"
    elif kind == "unexpected":
        content["extra"] = torch.zeros(1)
        said = "extra"
    elif kind == "shape":
        content["norm.weight"] = torch.zeros(17)
        said = r"norm\.weight.*17.*16"
    else:
        content |= {"head.weight": torch.zeros(100, 16), "head.bias": torch.zeros(100)}
        said = "100 classes.* 10"
    save_file(content, tmp_path / "w.safetensors")
    with pytest.raises(AttndropError, match=said):
        load(tmp_path / "w.safetensors")


def test_positions_are_resampled_only_when_asked(tmp_path):
    save_file(weights(), tmp_path / "w.safetensors")
    with pytest.raises(AttndropError, match="resample-positions"):
        load(tmp_path / "w.safetensors", image_size=16)
    subject = load(tmp_path / "w.safetensors", image_size=16, resample_positions=True)
    assert subject.model.network.pos_embed.shape[1] == 17
    store = Store(tmp_path / "store")
    measure("eval", subject, store)
    assert "position embeddings were resampled" in store.frame()["detail"].iloc[0]
    plain = load(tmp_path / "w.safetensors")
    assert subject.columns["run_id"] != plain.columns["run_id"]


class Evil:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("wrap", [lambda e: e, lambda e: {"state_dict": {"a": e}}])
@pytest.mark.parametrize("zipped", [True, False])
def test_a_malicious_file_does_nothing(tmp_path, wrap, zipped):
    path, marker = tmp_path / "w.pt", tmp_path / "marker"
    if zipped:
        torch.save(wrap(Evil(marker)), path)
    else:
        path.write_bytes(pickle.dumps(wrap(Evil(marker))))
    with pytest.raises(AttndropError) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    assert not marker.exists()


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04broken"])
@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_a_damaged_file(tmp_path, content, suffix):
    path = tmp_path / f"w.{suffix}"
    path.write_bytes(content)
    with pytest.raises(AttndropError):
        load(path)
    with pytest.raises(AttndropError, match="no file"):
        load(tmp_path / "absent.pt")


def test_rows_of_every_kind(tmp_path):
    save_file(weights(), tmp_path / "w.safetensors")
    subject = load(tmp_path / "w.safetensors", method="dropkey", settings={"p": 0.2})
    store = Store(tmp_path / "store")
    options = {
        "attack": AttackOptions(tuple(grid(["fgsm"], ["0.1"])), limit=30),
        "gradvar": GradvarOptions(examples=6),
    }
    for kind in ("eval", "calibrate", "attack", "gradvar"):
        assert measure(kind, subject, store, options=options.get(kind))
        assert measure(kind, subject, store, options=options.get(kind)) == []
    frame = store.frame()
    assert set(frame["run_id"]) == {subject.columns["run_id"]}
    assert set(frame["model"]) == {NAME}
    assert set(frame["dataset"]) == {"digits"}
    assert subject.columns["run_id"].startswith(f"outside--{NAME}--")
    assert frame[frame["metric"] == "accuracy"]["value"].iloc[0] > 0.6
    assert "weights_sha256" in frame["detail"].iloc[0]
    assert store.runs() == []
    again = load(tmp_path / "w.safetensors", method="dropkey", settings={"p": 0.2})
    assert again.columns == subject.columns


def test_normalisation(tmp_path):
    save_file(weights(), tmp_path / "w.safetensors")
    own = load(tmp_path / "w.safetensors").model
    assert own.mean.flatten().tolist() == pytest.approx(judged.splits().mean)
    told = load(tmp_path / "w.safetensors", mean=(0.5,), std=(0.25,)).model
    assert told.mean.item() == 0.5
    assert told.std.item() == 0.25
    with pytest.raises(UsageError, match="3 numbers, the images 1 channels"):
        load(tmp_path / "w.safetensors", mean=(0.5, 0.5, 0.5))


@pytest.fixture(scope="module")
def hugging_face(tmp_path_factory):
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    folder = tmp_path_factory.mktemp("hf")
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        image_size=8, patch_size=4, num_channels=1, num_labels=10,
    )  # fmt: skip
    torch.manual_seed(0)
    model = ViTForImageClassification(config).eval()
    model.save_pretrained(folder)
    ViTImageProcessor(image_mean=[0.25], image_std=[0.5]).save_pretrained(folder)
    return folder, model


def test_a_hugging_face_folder(hugging_face, tmp_path, capfd):
    folder, model = hugging_face
    capfd.readouterr()
    subject = load_outside(str(folder), None, "digits", method="dropkey")
    assert "Loading weights" not in capfd.readouterr().err, "no bar of the library's own"
    x = judged.some(5).pixels(slice(None))
    with torch.no_grad():
        expected = model(pixel_values=(x - 0.25) / 0.5).logits
        assert (subject.model(x) - expected).abs().max() < 1e-6
    store = Store(tmp_path)
    assert measure("eval", subject, store)
    assert measure("gradvar", subject, store, options=GradvarOptions(examples=4))
    assert measure(
        "attack", subject, store, options=AttackOptions(tuple(grid(["pgd"], ["0.1"])), limit=9)
    )
    with pytest.raises(UsageError, match="brings its own weights"):
        load_outside(str(folder), folder / "model.safetensors", "digits")


def test_a_hugging_face_folder_that_is_not_whole(hugging_face, tmp_path):
    import shutil

    from safetensors.torch import load_file

    folder = shutil.copytree(hugging_face[0], tmp_path / "part")
    content = load_file(folder / "model.safetensors")
    del content["classifier.weight"]
    save_file(content, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(AttndropError, match=r"not whole: missing: classifier\.weight"):
        load_outside(str(folder), None, "digits")


def test_wrong_use(tmp_path):
    save_file(weights(), tmp_path / "w.safetensors")
    with pytest.raises(UsageError, match="a checkpoint is needed"):
        load_outside(NAME, None, "digits")
    with pytest.raises(UsageError, match="vit_tiny_patch16_224"):
        load_outside("vit_tiny_patch16_225", tmp_path / "w.safetensors", "digits")
    with pytest.raises(UsageError, match="did you mean 'digits'"):
        load_outside(NAME, tmp_path / "w.safetensors", "digit")
    with pytest.raises(UsageError, match="unknown method"):
        load(tmp_path / "w.safetensors", method="drop")
