"""Splits: stratified, disjoint, complete, and the same for ever."""

import hashlib

import numpy as np
import pytest
import torch

from attndrop_repro import data
from attndrop_repro.config.errors import UsageError
from attndrop_repro.config.recipe import Data
from attndrop_repro.data.splitting import mislabelled, stratified, stratified_count

DIGITS = Data(name="digits", validation=0.15, test=0.25)


def labels_of(*counts: int) -> np.ndarray:
    return np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))


@pytest.mark.parametrize("share", [0.01, 0.1, 0.25, 0.5, 0.9])
def test_sizes_agree_with_scikit_learn(share: float) -> None:
    from sklearn.model_selection import train_test_split

    labels = labels_of(178, 182, 177, 183, 181, 182, 181, 179, 174, 180)
    ours = stratified(labels, share, 0, "x")
    theirs = train_test_split(np.arange(len(labels)), test_size=share, stratify=labels)
    assert abs(len(ours[1]) - len(theirs[1])) <= 1  # they round up, we to the nearest
    for label in range(10):
        exact = share * (labels == label).sum()
        assert abs((labels[ours[1]] == label).sum() - exact) < 1


def test_parts_are_disjoint_complete_and_in_order() -> None:
    labels = labels_of(7, 1, 0, 30)
    first, second = stratified(labels, 0.4, 3, "x")
    assert np.array_equal(np.sort(np.concatenate([first, second])), np.arange(38))
    assert (np.diff(first) > 0).all()
    assert (np.diff(second) > 0).all()
    assert len(second) == 15


def test_streams_and_seeds_are_independent() -> None:
    labels = labels_of(50, 50)
    base = stratified(labels, 0.3, 0, "x")[1]
    assert np.array_equal(base, stratified(labels, 0.3, 0, "x")[1])
    assert not np.array_equal(base, stratified(labels, 0.3, 1, "x")[1])
    assert not np.array_equal(base, stratified(labels, 0.3, 0, "y")[1])


@pytest.mark.parametrize("count", [0, 1, 20])
def test_count_may_be_nothing_or_everything(count: int) -> None:
    first, second = stratified_count(labels_of(10, 10), count, 0, "x")
    assert (len(first), len(second)) == (20 - count, count)


def test_no_rows_at_all() -> None:
    first, second = stratified(np.empty(0, np.int64), 0.5, 0, "x")
    assert len(first) == len(second) == 0


def test_mislabelled_share_is_exact_and_always_wrong() -> None:
    labels = labels_of(100, 100, 100)
    noisy = mislabelled(labels, 3, 0.2, 0)
    changed = noisy != labels
    assert changed.sum() == 60
    assert noisy.min() >= 0
    assert noisy.max() < 3
    assert np.array_equal(noisy, mislabelled(labels, 3, 0.2, 0))
    assert not np.array_equal(noisy, mislabelled(labels, 3, 0.2, 1))
    assert np.array_equal(mislabelled(labels, 3, 0.0, 0), labels)
    assert (mislabelled(labels, 3, 1.0, 0) != labels).all()


def test_digits() -> None:
    splits = data.load(DIGITS)
    parts = (splits.train, splits.validation, splits.test)
    assert sum(map(len, parts)) == 1797
    assert len(splits.test) == 449
    everything = torch.cat([part.ids for part in parts])
    assert len(set(everything.tolist())) == 1797
    # the split of the shipped suite: whatever changes it makes old results incomparable
    assert hashlib.sha256(splits.test.ids.numpy().tobytes()).hexdigest()[:16] == "f238ca5901a47e8c"
    assert splits.checksum == data.load(DIGITS).checksum


def test_digits_pixels_are_exact() -> None:
    from sklearn.datasets import load_digits

    splits = data.load(DIGITS)
    pixels = splits.test.pixels(slice(None))
    expected = load_digits().images[splits.test.ids.numpy()] / 16
    assert pixels.dtype == torch.float32
    assert np.array_equal(pixels.numpy()[:, 0].astype(np.float64), expected)
    assert pixels.min() == 0
    assert pixels.max() == 1
    train = load_digits().images[splits.train.ids.numpy()] / 16
    assert splits.mean == pytest.approx((train.mean(),), abs=1e-12)
    assert splits.std == pytest.approx((train.std(),), abs=1e-12)


def test_train_images_and_noise_leave_validation_and_test_alone() -> None:
    whole = data.load(DIGITS)
    small = data.load(DIGITS.model_copy(update={"train_images": 200, "label_noise": 0.2}))
    assert len(small.train) == 200
    assert torch.equal(small.test.ids, whole.test.ids)
    assert torch.equal(small.validation.labels, whole.validation.labels)
    assert set(small.train.ids.tolist()) <= set(whole.train.ids.tolist())
    lookup = dict(zip(whole.train.ids.tolist(), whole.train.labels.tolist(), strict=True))
    true = torch.tensor([lookup[i] for i in small.train.ids.tolist()])
    assert (true != small.train.labels).sum() == 40
    counts = torch.bincount(true, minlength=10)
    assert counts.min() >= 19


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "digit"}, "digits"),
        ({"test": None}, "data.test"),
        ({"train_images": 5000}, "training images"),
        ({"validation": 0.0001}, "validation"),
    ],
)
def test_impossible_requests(change: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        data.load(DIGITS.model_copy(update=change))
    assert "\n" not in str(caught.value)
