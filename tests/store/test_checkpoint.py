"""Checkpoints: exact, whole or not there, and never a way for code to run (bug report P08)."""

import json
import os
import pickle
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.store import checkpoint

TENSORS = {
    "model/blocks.0.weight": torch.randn(3, 4),
    "model/bf16": torch.randn(5).to(torch.bfloat16),
    "model/half": torch.randn(5).half(),
    "model/scalar": torch.tensor(2.5, dtype=torch.float64),
    "model/count": torch.tensor([2**62 + 1, -1]),
    "model/flag": torch.tensor([True, False]),
    "streams/regulariser": torch.get_rng_state(),
    "empty": torch.empty(0, 3),
    "odd/../name": torch.ones(1),
    "/etc/passwd": torch.ones(1),
    "..": torch.ones(2),
    "state.json": torch.ones(2),
    "tensors/x": torch.ones(3),
    "a.b.c": torch.tensor([float("nan"), float("inf"), -0.0]),
}
STATE = {
    "step": 3,
    "big": 2**80 + 1,
    "exact": 0.1 + 0.2,
    "tiny": 5e-324,
    "worst": float("-inf"),
    "text": "é\n\u2028",
    "deep": [{"a": [None, True, 1.0]}],
}


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def test_round_trip_is_exact(tmp_path):
    path = checkpoint.save(tmp_path, TENSORS, STATE)
    assert path.name == "step-00000003"
    tensors, state = checkpoint.load(path)
    assert state == STATE
    assert type(state["deep"][0]["a"][2]) is float
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert (tensors[name].dtype, tensors[name].shape) == (tensor.dtype, tensor.shape)
        assert bits(tensors[name]) == bits(tensor), name


def test_files_stay_in_the_folder_and_are_no_pickles(tmp_path):
    checkpoint.save(tmp_path / "checkpoints", TENSORS, STATE)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]
    (folder,) = (tmp_path / "checkpoints").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == [
        "manifest.json",
        "model.safetensors",
        "odd.safetensors",
        "state.json",
        "streams.safetensors",
        "tensors.safetensors",
    ]


def test_shared_memory_views_and_gradients(tmp_path):
    base = torch.arange(12.0).reshape(3, 4)
    tied = torch.nn.Parameter(torch.ones(2))
    tensors = {"m/a": base, "m/t": base.T, "m/row": base[1], "m/p": tied, "m/q": tied}
    loaded = checkpoint.load(checkpoint.save(tmp_path, tensors, {"step": 0})).tensors
    for name, tensor in tensors.items():
        assert torch.equal(loaded[name], tensor)
        assert not loaded[name].requires_grad


def test_the_generator_goes_on_where_it_was(tmp_path):
    torch.manual_seed(1)
    path = checkpoint.save(tmp_path, {"rng/cpu": torch.get_rng_state()}, {"step": 0})
    expected = torch.rand(3)
    torch.set_rng_state(checkpoint.load(path).tensors["rng/cpu"])
    assert torch.equal(torch.rand(3), expected)


def test_nothing_in_it(tmp_path):
    tensors, state = checkpoint.load(checkpoint.save(tmp_path, {}, {}, step=0))
    assert (tensors, state) == ({}, {})


@pytest.mark.parametrize(
    "state",
    [
        {"a": {1: 2}},
        {"a": torch.ones(1)},
        {"a": object()},
        {"a": {1, 2}},
        {"a": b"x"},
        {"a": [torch.float32]},
    ],
)
def test_states_that_json_would_change_are_refused(tmp_path, state):
    with pytest.raises(TypeError, match=r"state\.a"):
        checkpoint.save(tmp_path, {}, state, step=0)
    assert list(tmp_path.iterdir()) == []


def steps(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_last_two_and_the_best_are_kept(tmp_path):
    for step in range(6):
        tensors = {"x": torch.tensor(step)}
        checkpoint.save(tmp_path, tensors, {"step": step}, best=step in (1, 2))
    assert steps(tmp_path) == ["best-00000002", "step-00000004", "step-00000005"]
    assert checkpoint.latest(tmp_path) == (tmp_path / "step-00000005", [])
    best = checkpoint.best(tmp_path).path
    assert checkpoint.load(best).tensors["x"] == 2
    checkpoint.save(tmp_path, {}, {"step": 6}, keep=1)
    assert steps(tmp_path) == ["best-00000002", "step-00000006"]


def test_many_steps_are_ordered_by_number(tmp_path):
    for step in (99_999_999, 100_000_000):
        checkpoint.save(tmp_path, {}, {"step": step})
    assert checkpoint.latest(tmp_path).path.name == "step-100000000"


def test_the_same_step_again_replaces_it(tmp_path):
    for value in (1.0, 2.0):
        checkpoint.save(tmp_path, {"x": torch.tensor(value)}, {"step": 1}, best=True)
    for path in (checkpoint.latest(tmp_path).path, checkpoint.best(tmp_path).path):
        assert checkpoint.load(path).tensors["x"] == 2
    assert steps(tmp_path) == ["best-00000001", "step-00000001"]


def test_no_checkpoints(tmp_path):
    assert checkpoint.latest(tmp_path / "none") == (None, [])
    assert checkpoint.best(tmp_path) == (None, [])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "flipped weights": lambda folder: flip(folder / "model.safetensors"),
    "flipped state": lambda folder: flip(folder / "state.json"),
    "flipped manifest": lambda folder: flip(folder / "manifest.json"),
    "cut": lambda folder: (folder / "model.safetensors").write_bytes(b"\x08"),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "no state": lambda folder: (folder / "state.json").unlink(),
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "empty manifest": lambda folder: (folder / "manifest.json").write_bytes(b""),
    "binary manifest": lambda folder: (folder / "manifest.json").write_bytes(b"\xff\x00"),
    "other json": lambda folder: (folder / "manifest.json").write_text("[1]"),
    "link": lambda folder: (
        (folder / "model.safetensors").rename(folder.parent / "moved"),
        (folder / "model.safetensors").symlink_to(folder.parent / "moved"),
    ),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_one_is_told_and_the_one_before_it_used(tmp_path, damage):
    for step in (1, 2):
        checkpoint.save(tmp_path, {"model/w": torch.ones(9)}, {"step": step, "pad": "x" * 99})
    damage(tmp_path / "step-00000002")
    with pytest.raises(AttndropError) as error:
        checkpoint.load(tmp_path / "step-00000002")
    assert "\n" not in str(error.value)
    found = checkpoint.latest(tmp_path)
    assert found.path == tmp_path / "step-00000001"
    (reason,) = found.skipped
    assert "step-00000002" in reason
    checkpoint.save(tmp_path, {}, {"step": 3})  # and training goes on


def forge(path: Path, *more: str) -> None:
    """Gives a checkpoint a manifest that is in order, whatever its files are now."""
    names = [file.name for file in path.iterdir() if file.name != "manifest.json"]
    files = {name: checkpoint._fingerprint(path / name) for name in (*names, *more)}
    manifest = {"format": checkpoint.FORMAT, "files": files, "seal": checkpoint._seal(files)}
    (path / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("name", ["../outside.safetensors", "/etc/passwd", "x.pt", "../state.json"])
def test_a_manifest_cannot_lead_out_of_the_folder(tmp_path, name):
    path = checkpoint.save(tmp_path / "c", {"model/w": torch.ones(2)}, {"step": 1})
    for inside in ("outside.safetensors", "state.json", "step-00000001/x.pt"):
        (tmp_path / "c" / inside).write_bytes(b"x")
    forge(path, name)
    with pytest.raises(AttndropError, match="lists files that no checkpoint has"):
        checkpoint.load(path)


class Malicious:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("protocol", [0, 4])
def test_a_pickle_in_place_of_weights_does_nothing(tmp_path, protocol):
    marker = tmp_path / "marker"
    path = checkpoint.save(tmp_path / "c", {"model/w": torch.ones(2)}, {"step": 1})
    (path / "model.safetensors").write_bytes(pickle.dumps(Malicious(marker), protocol))
    with pytest.raises(AttndropError, match="damaged"):
        checkpoint.load(path)
    forge(path)
    with pytest.raises(AttndropError, match="cannot be read") as error:
        checkpoint.load(path)
    assert "\n" not in str(error.value)
    torch.save(Malicious(marker), tmp_path / "evil.pt")
    with pytest.raises(AttndropError, match="damaged"):
        checkpoint.load(tmp_path / "evil.pt")
    assert not marker.exists()


def test_another_format_is_refused_by_name(tmp_path):
    path = checkpoint.save(tmp_path, {}, {"step": 1})
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, "format": "attndrop-checkpoint-9"}))
    with pytest.raises(AttndropError, match="has format 'attndrop-checkpoint-9'"):
        checkpoint.load(path)


@pytest.mark.parametrize("content", ["many tensors", "long state"])
def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path, content):
    for step in (1, 2):
        checkpoint.save(tmp_path, {"x": torch.ones(4)}, {"step": step}, best=step == 1)
    before = steps(tmp_path)
    tensors = {"x": torch.ones(100_000)} if content == "many tensors" else {}
    state = {"step": 3, "pad": "x" * 100_000}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(
            AttndropError, match=r"cannot write .*step-00000003.*too large"
        ) as error:
            checkpoint.save(tmp_path, tensors, state, best=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(error.value)
    assert steps(tmp_path) == before
    assert checkpoint.latest(tmp_path) == (tmp_path / "step-00000002", [])
    checkpoint.save(tmp_path, tensors, state)


# One process imports, then becomes many, each of which dies at its own step into the file system.
KILLED = """
import os, sys
from pathlib import Path
import torch, safetensors.torch
from attndrop_repro.store import checkpoint

os.fsync = lambda handle: None  # a kill is no power cut
left = 0

def hook(event, args):
    global left
    if event in ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link"):
        left -= 1
        if left == 0:
            os._exit(9)

for folder in sorted(Path(sys.argv[1]).iterdir()):
    if os.fork() == 0:
        left = int(folder.name)
        sys.addaudithook(hook)
        for step in (3, 4):
            checkpoint.save(folder, {"x": torch.tensor(step)}, {"step": step}, best=True)
        os._exit(0)
    os.wait()
"""


def test_killed_at_any_moment_leaves_a_whole_checkpoint(tmp_path):
    for step in (1, 2):
        checkpoint.save(tmp_path / "a", {"x": torch.tensor(step)}, {"step": step}, best=step == 1)
    folders = [tmp_path / "b" / str(moment) for moment in range(1, 72, 2)]
    for folder in folders:
        shutil.copytree(tmp_path / "a", folder)
    subprocess.run([sys.executable, "-c", KILLED, tmp_path / "b"], check=True, timeout=120)
    ends = set()
    for folder in folders:
        found = checkpoint.latest(folder)
        loaded = checkpoint.load(found.path)
        assert loaded.tensors["x"] == loaded.state["step"] >= 2
        ends.add(loaded.state["step"])
        best = checkpoint.best(folder)
        assert checkpoint.load(best.path).state["step"] >= 1
        assert found.skipped == best.skipped == []
    assert ends == {2, 3, 4}
    unfinished = [folder for folder in folders if any(folder.glob(".tmp-*"))]
    assert len(unfinished) > 10
    checkpoint.save(unfinished[-1], {}, {"step": 9})
    assert not any(unfinished[-1].glob(".tmp-*"))


def test_every_file_of_a_checkpoint_has_reached_the_disk_before_it_has_its_name(
    tmp_path, monkeypatch
):
    synced = []
    monkeypatch.setattr("attndrop_repro.store.checkpoint.sync", lambda path: synced.append(path))
    monkeypatch.setattr(
        "attndrop_repro.store.checkpoint.move_folder", lambda source, target: synced.append(target)
    )
    path = tmp_path / "step-00000001"
    checkpoint.save_folder(path, {"model/w": torch.ones(2), "ema/w": torch.ones(2)}, {"step": 1})
    assert {file.name for file in synced[:4]} == {
        "state.json", "model.safetensors", "ema.safetensors", "manifest.json",
    }  # fmt: skip
    assert synced[4:] == [synced[0].parent, path]
