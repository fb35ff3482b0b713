"""Models trained elsewhere: by timm's name and a checkpoint, or a local Hugging Face folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import attndrop_repro
from attndrop_repro import data, models
from attndrop_repro.adapters import Handle, apply
from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.config.recipe import Data, Model
from attndrop_repro.config.spec import canonical_json
from attndrop_repro.data import Splits
from attndrop_repro.data.registry import Request
from attndrop_repro.methods import canonical, resolve
from attndrop_repro.models import PixelModel, Subject
from attndrop_repro.models.weights import content_hash, load_weights, read_weights
from attndrop_repro.store.schema import outside_id

TEST_SHARE = 0.25  # of data sets that publish no test set


def load_outside(
    model: str,
    checkpoint: Path | str | None,
    dataset: str,
    *,
    data_dir: Path | str | None = None,
    download: bool = False,
    image_size: int | None = None,
    model_args: Mapping[str, Any] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    resample_positions: bool = False,
    method: str = "none",
    settings: Mapping[str, Any] | None = None,
    device: str = "cpu",
) -> Subject:
    """A model from elsewhere with its data, ready to be measured.

    Args:
        model: A name of timm's or of ours, or a folder that `save_pretrained` of Hugging Face made.
        checkpoint: Its weights, safetensors or a torch file; not needed with a folder.
        dataset: As `attndrop datasets` lists them.
        data_dir: Folder with the data set's files.
        download: Gets what is missing, where it can be had that way.
        image_size: Pixels a side, if not the data set's own.
        model_args: Arguments of the model's constructor.
        mean: Normalisation that the model was trained with, per channel. None: what a Hugging Face
            folder says; what timm says of the model, for images on disk; else that of the training
            pixels.
        std: Likewise.
        resample_positions: Whether position embeddings of another image size may be resampled; the
            rows then say so. Without it such a checkpoint is an error.
        method: What regularises it while its gradients are measured.
        settings: Of the method.
        device: Where to put it.

    Raises:
        UsageError: The model, data set or method does not exist, or a statistic has a wrong length.
        AttndropError: The checkpoint is absent, damaged, would run code, or is not whole.
    """
    resolved = {
        name: s.model_dump(mode="json") for name, s in resolve(method, settings or {}).items()
    }
    splits = _splits(dataset, image_size, data_dir, download)
    folder = Path(model)
    if (folder / "config.json").is_file():
        if checkpoint is not None:
            raise UsageError(f"{folder} brings its own weights: leave --checkpoint out")
        built, weights = _from_folder(folder, splits, (mean, std))
        notes: list[str] = []
    elif checkpoint is None:
        raise UsageError(
            f"a checkpoint is needed for {model!r}: give --checkpoint FILE, or as --model a folder "
            "with a config.json"
        )
    else:
        path = Path(checkpoint)
        built, notes = _from_checkpoint(
            model, path, splits, model_args or {}, (mean, std), resample_positions
        )
        weights = content_hash(path)
    built = built.to(device).eval()
    about = {
        "model": folder.name if folder.is_dir() else model,
        "dataset": dataset,
        "task": "image-classification",
        "method": canonical(method),
        "settings": canonical_json(resolved),
        "precision": "fp64" if next(built.parameters()).dtype == torch.float64 else "fp32",
        "threads": torch.get_num_threads(),
    }
    decided = {
        **about,
        "model_args": dict(model_args or {}),
        "weights": weights,
        "image_size": splits.image_size,
        "notes": notes,
    }
    digest = hashlib.sha256(canonical_json(decided).encode()).hexdigest()[:12]
    columns = {
        **about,
        "run_id": outside_id(str(about["model"]), digest[:8]),
        "config_hash": digest,
        "code_version": attndrop_repro.__version__,
        "status": "finished",
    }

    def make_handle() -> Handle:
        return apply(built, method, resolved)

    told = {"weights_sha256": weights, "loaded": notes, "mean": built.mean.flatten().tolist()}
    return Subject(built, None, columns, splits, make_handle, None, told)


def _splits(
    dataset: str, image_size: int | None, data_dir: Path | str | None, download: bool
) -> Splits:
    section = Data(name=dataset, image_size=image_size)
    entry = data.describe(dataset)
    # what comes with a dependency is read at once, and may have no test set of its own
    if not entry.layout and entry.read(Request(section)).test is None:
        section = Data(name=dataset, image_size=image_size, test=TEST_SHARE)
    return data.load(section, data_dir=data_dir, download=download)


Statistics = tuple[Sequence[float] | None, Sequence[float] | None]


def _from_checkpoint(
    name: str, path: Path, splits: Splits, arguments: Mapping[str, Any], statistics: Statistics,
    resample: bool,
) -> tuple[PixelModel, list[str]]:  # fmt: skip
    tensors = read_weights(path)
    built = models.build(
        Model(name=name, args=dict(arguments)), classes=splits.classes,
        image_size=splits.image_size, channels=splits.channels, mean=splits.mean, std=splits.std,
        seed=0,
    )  # fmt: skip
    own, given = built.network.state_dict().get("pos_embed"), tensors.get("pos_embed")
    if own is not None and given is not None and own.shape[-1:] != given.shape[-1:]:
        raise AttndropError(
            f"{path} is of another model: its tokens are {given.shape[-1]} wide, those of {name} "
            f"{own.shape[-1]}; give what it was made with, as in --model-arg "
            f"embed_dim={given.shape[-1]}"
        )
    if own is not None and given is not None and own.shape != given.shape and not resample:
        raise AttndropError(
            f"{path} has position embeddings of shape {tuple(given.shape)}, the model at "
            f"{splits.image_size} pixels wants {tuple(own.shape)}: choose the size that it was "
            "trained at with --image-size, its patches with --model-arg patch_size=N, or have them "
            "resampled with --resample-positions"
        )
    notes = load_weights(built, tensors)
    # small sets are mostly learned from scratch with statistics of their own
    said = {} if splits.train.in_memory else getattr(built.network, "pretrained_cfg", None) or {}
    return _normalised(built.network, splits, statistics, said.get("mean"), said.get("std")), notes


def _from_folder(folder: Path, splits: Splits, statistics: Statistics) -> tuple[PixelModel, str]:
    from transformers import AutoModelForImageClassification

    try:
        with _no_bar():
            network, info = AutoModelForImageClassification.from_pretrained(
                folder, local_files_only=True, output_loading_info=True
            )
    except (OSError, ValueError, RuntimeError) as error:
        raise AttndropError(f"{folder} cannot be loaded: {' '.join(str(error).split())}") from None
    wrong = {
        what: sorted(map(str, info.get(f"{what}_keys") or ()))
        for what in ("missing", "unexpected", "mismatched")
    }
    if any(wrong.values()):
        shown = "; ".join(f"{what}: {', '.join(names)}" for what, names in wrong.items() if names)
        raise AttndropError(f"{folder} is not whole: {shown}")
    if network.config.num_labels != len(splits.classes):
        raise AttndropError(
            f"{folder} has {network.config.num_labels} classes, the data have {len(splits.classes)}"
        )
    said = _preprocessing(folder)
    built = _normalised(
        _Logits(network), splits, statistics, said.get("image_mean"), said.get("image_std")
    )
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin")):
        digest.update(content_hash(file).encode())
    return built, digest.hexdigest()


@contextmanager
def _no_bar() -> Iterator[None]:
    """Transformers' own progress bar stays away: what is shown is the command's to say."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _preprocessing(folder: Path) -> dict[str, Any]:
    from attndrop_repro.store.atomic import read_json

    try:
        return read_json(folder / "preprocessor_config.json")
    except FileNotFoundError:
        return {}


def _normalised(
    network: nn.Module, splits: Splits, given: Statistics, mean: Any, std: Any
) -> PixelModel:
    """With what the user says, else what the model says, else what the data say."""
    chosen = []
    for asked, said, measured in zip(given, (mean, std), (splits.mean, splits.std), strict=True):
        if asked is not None and len(asked) != splits.channels:
            raise UsageError(
                f"normalisation has {len(asked)} numbers, the images {splits.channels} channels"
            )
        fits = said is not None and len(said) == splits.channels
        chosen.append(asked if asked is not None else said if fits else measured)
    return PixelModel(
        network, mean=chosen[0], std=chosen[1], classes=splits.classes,
        image_size=splits.image_size,
    )  # fmt: skip


class _Logits(nn.Module):
    """A Hugging Face classifier that takes pixels and gives logits."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: Tensor) -> Tensor:
        """Logits (B, classes) of normalised pixels (B, C, H, W)."""
        logits: Tensor = self.network(pixel_values=pixels).logits
        return logits
