"""Checkpoints: safetensors and JSON under a manifest with checksums; nothing is ever unpickled.

A checkpoint is a folder. It is written beside, every file and the folder synced, then renamed into
place, so under its own name it is whole; only then are older ones removed. A kill at any moment
leaves the newest whole one and the one before it. A manifest proves every byte: what was damaged
later is noticed before it is used.

Tensors are named ``group/key``, as in ``model/blocks.0.attn.qkv.weight``: each group is a file of
its own, so that ``model.safetensors`` is a plain file of weights. Keys without ``/`` are in
``tensors.safetensors``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.store.atomic import (
    TEMPORARY,
    disk_errors,
    move_folder,
    remove_folder,
    sync,
    temporary_name,
    writer_lives,
)

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = "attndrop-checkpoint-1"
_UNGROUPED = "tensors"
_GROUP = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_FILE = re.compile(r"(state\.json|[a-z0-9][a-z0-9_-]{0,63}\.safetensors)")
_STEP = re.compile(r"(step|best)-([0-9]{8,})")


class Checkpoint(NamedTuple):
    """What was saved: tensors by name, on the CPU, and a JSON state."""

    tensors: dict[str, Tensor]
    state: dict[str, Any]


class Found(NamedTuple):
    """The newest whole checkpoint, or None, and a line for each damaged one passed over."""

    path: Path | None
    skipped: list[str]


def save(
    folder: Path,
    tensors: Mapping[str, Tensor],
    state: Mapping[str, Any],
    *,
    step: int | None = None,
    best: bool = False,
    keep: int = 2,
) -> Path:
    """Saves ``folder/step-00000012`` and removes all but the last `keep` and the best.

    Args:
        folder: The run's folder of checkpoints.
        tensors: By ``group/key``; any device, any dtype, any shape.
        state: JSON values with text keys; whole numbers of any size and floats come back exactly.
        step: Its number; ``state["step"]`` if not given.
        best: Whether this is the best so far; it is then kept as ``best-00000012``, and the best
            before it is removed.
        keep: How many of the last to keep.

    Raises:
        AttndropError: The disk is full or the folder cannot be written; nothing is lost.
        TypeError: The state is not JSON.
    """
    number = int(state["step"] if step is None else step)
    path = folder / f"step-{number:08d}"
    save_folder(path, tensors, state)
    if best:
        _keep_as_best(path, folder / f"best-{number:08d}")
    for old in _numbered(folder, "step")[keep:]:
        remove_folder(old)
    for old in _numbered(folder, "best")[1:]:
        remove_folder(old)
    for left in folder.glob(f"{TEMPORARY}*"):
        if not writer_lives(left):
            remove_folder(left)
    return path


def save_folder(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Saves one checkpoint as the folder `path`, as for a snapshot; see `save`."""
    text = _json(state)
    temporary = temporary_name(path)
    with disk_errors(path):
        temporary.mkdir(parents=True)
        try:
            (temporary / "state.json").write_text(text, encoding="utf-8")
            for group, content in _groups(tensors).items():
                _write_tensors(temporary / f"{group}.safetensors", content)
            files = {file.name: _fingerprint(file) for file in sorted(temporary.iterdir())}
            manifest = {"format": FORMAT, "files": files, "seal": _seal(files)}
            (temporary / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
            with ThreadPoolExecutor() as pool:  # the disk takes them in one go
                list(pool.map(sync, temporary.iterdir()))
            sync(temporary)
            move_folder(temporary, path)
        except BaseException:
            remove_folder(temporary)
            raise


def load(path: Path) -> Checkpoint:
    """Loads a checkpoint after checking all of its bytes.

    Raises:
        AttndropError: It is damaged, half-written, or none; the message says which file.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = check(path)
    state = json.loads((path / "state.json").read_text(encoding="utf-8"))
    tensors: dict[str, Tensor] = {}
    for name in files:
        if name == "state.json":
            continue
        group = name.removesuffix(".safetensors")
        prefix = "" if group == _UNGROUPED else f"{group}/"
        try:
            content = load_file(path / name)
        except (SafetensorError, OSError) as error:
            raise AttndropError(f"checkpoint {path / name} cannot be read: {error}") from None
        tensors.update({prefix + key: tensor for key, tensor in content.items()})
    return Checkpoint(tensors, state)


def check(path: Path) -> list[str]:
    """Checks every byte of a checkpoint.

    Returns:
        Its files, without the manifest.

    Raises:
        AttndropError: It is damaged, half-written, or none; the message says which file.
    """
    try:
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        files = manifest["files"]
        if manifest["format"] != FORMAT:
            raise AttndropError(
                f"checkpoint {path} has format {manifest['format']!r}, this version reads {FORMAT}"
            )
        if manifest["seal"] != _seal(files):
            raise ValueError("its checksum does not fit")
        names = sorted(files)
        if "state.json" not in names or not all(_FILE.fullmatch(name) for name in names):
            raise ValueError("it lists files that no checkpoint has")
    except FileNotFoundError:
        raise AttndropError(f"{path} is no checkpoint: it has no manifest.json") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise AttndropError(f"checkpoint {path} is damaged: manifest.json: {reason}") from None
    for name in names:
        file = path / name
        if file.is_symlink() or not file.is_file():
            raise AttndropError(f"checkpoint {path} is damaged: {name} is missing")
        try:
            same = _fingerprint(file) == files[name]
        except OSError as error:
            raise AttndropError(f"checkpoint {file} cannot be read: {error.strerror}") from None
        if not same:
            raise AttndropError(f"checkpoint {path} is damaged: {name} has other bytes than saved")
    return names


def latest(folder: Path) -> Found:
    """The newest checkpoint of a run that is whole."""
    return _first_whole(_numbered(folder, "step"))


def best(folder: Path) -> Found:
    """The checkpoint kept as the best."""
    return _first_whole(_numbered(folder, "best"))


def _first_whole(paths: list[Path]) -> Found:
    skipped = []
    for path in paths:
        try:
            check(path)
        except AttndropError as error:
            skipped.append(str(error))
        else:
            return Found(path, skipped)
    return Found(None, skipped)


def _numbered(folder: Path, kind: str) -> list[Path]:
    """Checkpoints of a kind, newest first."""
    found = []
    for path in folder.glob(f"{kind}-*"):
        match = _STEP.fullmatch(path.name)
        if match:
            found.append((int(match[2]), path))
    return [path for _, path in sorted(found, reverse=True)]


def _keep_as_best(path: Path, target: Path) -> None:
    temporary = temporary_name(target)
    with disk_errors(target):
        temporary.mkdir(parents=True)
        try:
            for file in path.iterdir():
                _link(file, temporary / file.name)
            sync(temporary)
            move_folder(temporary, target)
        except BaseException:
            remove_folder(temporary)
            raise


def _link(file: Path, target: Path) -> None:
    try:
        target.hardlink_to(file)  # files of a checkpoint never change
    except OSError:  # a file system without hard links
        target.write_bytes(file.read_bytes())
        sync(target)


def _groups(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        group, _, key = name.partition("/")
        # What cannot name a file, and could lead out of the folder, is no group.
        if not key or not _GROUP.fullmatch(group) or group == _UNGROUPED:
            group, key = _UNGROUPED, name
        groups.setdefault(group, {})[key] = tensor
    return groups


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    seen: set[int] = set()
    content = {}
    for key in sorted(tensors):
        tensor = tensors[key].detach().cpu().contiguous()
        start = tensor.untyped_storage().data_ptr()
        if start in seen:  # tied weights, views: the format holds no shared memory
            tensor = tensor.clone()
        seen.add(start)
        content[key] = tensor
    try:
        save_file(content, path)
    except SafetensorError as error:
        raise OSError(0, " ".join(str(error).split())) from None


def _json(state: Mapping[str, Any]) -> str:
    _check_json(state, "state")
    return json.dumps(dict(state), ensure_ascii=False) + "\n"


def _check_json(value: Any, where: str) -> None:
    """Refuses what JSON would change silently: keys that are no text, numbers of other kinds."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r}, which is no text")
            _check_json(inner, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            _check_json(inner, f"{where}[{index}]")
    elif type(value) not in (str, int, float, bool, type(None)):
        raise TypeError(f"{where} is of type {type(value).__name__}, which is not JSON")


def _fingerprint(file: Path) -> dict[str, Any]:
    with file.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    return {"bytes": file.stat().st_size, "sha256": digest}


def _seal(files: Any) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
