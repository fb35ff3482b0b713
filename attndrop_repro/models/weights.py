"""Weights from a file into a network: all of them, or an error; never a silent part, never code."""

from __future__ import annotations

import hashlib
import pickle
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.models.pixel import PixelModel

_INSIDE = ("state_dict", "model", "state_dict_ema", "model_ema")
_PREFIXES = ("module.", "model.", "network.", "_orig_mod.")


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a file of weights, by the network's own names.

    Args:
        path: safetensors, or what torch saved and its weights-only loader accepts; wrapped as
            ``{"state_dict": ...}`` or prefixed ``module.``, as training scripts do.

    Raises:
        AttndropError: It is absent, damaged, holds no weights, or would run code when loaded.
    """
    if not path.is_file():
        raise AttndropError(f"no file {path}: give the weights' own file")
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return _unprefixed(load_file(path))
        except SafetensorError as error:
            raise AttndropError(f"{path} is damaged: {' '.join(str(error).split())}") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it asks to be told of files that it is not made for
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # torch's own words advise to load it all the same; only what it stumbled over is of use
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        reason = f"it holds {found[1]}" if found else "it is no pickle of tensors"
        raise AttndropError(
            f"{path} holds more than weights and is not loaded, since that could run code: save "
            f"its state dict alone, or as safetensors ({reason})"
        ) from None
    except (OSError, RuntimeError) as error:
        raise AttndropError(f"{path} is damaged: {' '.join(str(error).split())}") from None
    except (EOFError, ValueError, LookupError, TypeError, AttributeError):  # of its parser
        raise AttndropError(f"{path} is damaged, or no file that torch saved") from None
    return _unprefixed(_state_dict(path, content))


def _state_dict(path: Path, content: Any) -> dict[str, Tensor]:
    for name in _INSIDE:
        if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
            content = content[name]
            break
    if not isinstance(content, Mapping) or not content:
        raise AttndropError(f"{path} holds no state dict")
    if not all(isinstance(value, Tensor) for value in content.values()):
        raise AttndropError(f"{path} holds no state dict: some of its values are no tensors")
    return dict(content)


def _unprefixed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    names = list(tensors)
    found = True
    while found and names:
        found = False
        for prefix in _PREFIXES:
            if all(name.startswith(prefix) for name in names):
                names = [name[len(prefix) :] for name in names]
                found = True
    return dict(zip(names, tensors.values(), strict=True))


def load_weights(
    model: PixelModel, tensors: Mapping[str, Tensor], *, new_head: bool = False
) -> list[str]:
    """Puts weights into a model, every one of them.

    Position embeddings of another image size are resampled, as timm does, and that is said.

    Args:
        model: Changed in place.
        tensors: By the network's own names.
        new_head: Keep the model's own classifier where the weights have another number of classes.

    Returns:
        What was done to them, a line each.

    Raises:
        AttndropError: A weight is missing, too many, or of another shape.
    """
    network = model.network
    own = network.state_dict()
    given, notes = dict(tensors), []
    head = _head(network, own)
    theirs = given.get(head)
    if theirs is not None and theirs.shape[:1] != own[head].shape[:1]:
        if not new_head:
            raise AttndropError(
                f"the weights are of {len(theirs)} classes, the data have {len(model.classes)}"
            )
        for name in (head, head.removesuffix("weight") + "bias"):
            if name in own:
                given[name] = own[name]
        notes.append(f"the classifier is new: the weights had {len(theirs)} classes")
    if "pos_embed" in own and "pos_embed" in given:
        resampled = _positions(network, own["pos_embed"], given["pos_embed"])
        if resampled is not None:
            given["pos_embed"] = resampled
            notes.append("position embeddings were resampled to the model's image size")
    missing, extra = sorted(set(own) - set(given)), sorted(set(given) - set(own))
    if missing or extra:
        raise AttndropError(
            "the weights are of another model: "
            + "; ".join(
                f"{what} {_some(names)}"
                for what, names in (("without", missing), ("with", extra))
                if names
            )
        )
    for name, value in given.items():
        if value.shape != own[name].shape:
            raise AttndropError(
                f"the weights are of another model: {name} is {tuple(value.shape)}, not "
                f"{tuple(own[name].shape)}"
            )
    network.load_state_dict(given)
    return notes


def _some(names: Sequence[str], most: int = 12) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _head(network: nn.Module, own: Mapping[str, Tensor]) -> str:
    classifier = getattr(network, "get_classifier", lambda: None)()
    if classifier is not None:
        for name, module in network.named_modules():
            if module is classifier and f"{name}.weight" in own:
                return f"{name}.weight"
    return "head.weight"


def _positions(network: nn.Module, own: Tensor, given: Tensor) -> Tensor | None:
    if own.shape == given.shape or own.dim() != 3 or given.dim() != 3:
        return None
    prefix = int(getattr(network, "num_prefix_tokens", 1))
    grid = getattr(getattr(network, "patch_embed", None), "grid_size", None)
    old = given.shape[1] - prefix
    if grid is None or own.shape[1] != prefix + grid[0] * grid[1] or round(old**0.5) ** 2 != old:
        return None
    from timm.layers import resample_abs_pos_embed

    resampled: Tensor = resample_abs_pos_embed(given, list(grid), num_prefix_tokens=prefix)
    return resampled


def content_hash(path: Path) -> str:
    """sha256 of a file, as `RunSpec.init_from` wants it.

    Raises:
        AttndropError: There is no such file.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise AttndropError(f"cannot read {path}: {error.strerror}") from None


def start_from(model: PixelModel, path: Path, expected: str | None) -> list[str]:
    """Fine-tuning: starts a model from a file of weights, with a new classifier where it must be.

    Args:
        model: Freshly initialised, so that its classifier is the seed's own.
        path: The file.
        expected: Its sha256; None: any.

    Returns:
        What was done to them, a line each.
    """
    found = content_hash(path)
    if expected is not None and found != expected:
        raise AttndropError(f"{path} has changed since the run began: its sha256 is {found[:12]}")
    return load_weights(model, read_weights(path), new_head=True)
