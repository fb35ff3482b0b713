"""Per-example logits, kept exactly."""

import numpy as np
import pytest

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.store.logits import load_logits, save_logits


@pytest.mark.parametrize("n", [0, 1, 7])
def test_round_trip(tmp_path, n):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(n, 3))
    save_logits(
        tmp_path / "deep" / "test.safetensors", logits, np.arange(n) % 3, np.arange(n)[::-1]
    )
    loaded = load_logits(tmp_path / "deep" / "test.safetensors")
    assert loaded.logits.dtype == np.float32
    assert loaded.labels.dtype == loaded.ids.dtype == np.int64
    np.testing.assert_array_equal(loaded.logits, logits.astype(np.float32))
    np.testing.assert_array_equal(loaded.labels, np.arange(n) % 3)
    np.testing.assert_array_equal(loaded.ids, np.arange(n)[::-1])


def test_values_that_are_not_finite_stay(tmp_path):
    save_logits(tmp_path / "x", [[np.nan, np.inf]], [0], [5])
    np.testing.assert_array_equal(load_logits(tmp_path / "x").logits, [[np.nan, np.inf]])


@pytest.mark.parametrize(
    ("logits", "labels", "ids"),
    [([[1.0]], [0, 1], [0]), ([[1.0]], [0], [0, 1]), ([1.0], [0], [0]), ([[1.0]], [[0]], [0])],
)
def test_shapes_that_do_not_belong_together(tmp_path, logits, labels, ids):
    with pytest.raises(ValueError, match="do not belong together"):
        save_logits(tmp_path / "x", logits, labels, ids)
    assert list(tmp_path.iterdir()) == []


def test_damage_is_found(tmp_path):
    path = tmp_path / "x"
    save_logits(path, np.ones((4, 3)), np.zeros(4), np.arange(4))
    content = path.read_bytes()
    for position in range(0, len(content), 7):
        changed = bytearray(content)
        changed[position] ^= 1
        path.write_bytes(changed)
        with pytest.raises(AttndropError, match="is damaged"):
            load_logits(path)
    path.write_bytes(content[:50])
    with pytest.raises(AttndropError, match="is damaged"):
        load_logits(path)
    with pytest.raises(FileNotFoundError):
        load_logits(tmp_path / "nowhere")
