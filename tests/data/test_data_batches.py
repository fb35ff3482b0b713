"""Batches: functions of (seed, epoch, i) and (seed, step) alone; nothing else moves a draw."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.config.recipe import Augmentation
from attndrop_repro.data.base import ImageSplit, Splits
from attndrop_repro.data.batches import Batch, Share, TrainingBatches, evaluation_batches
from attndrop_repro.data.folders import Files
from attndrop_repro.data.image_augmentation import ImageAugmentation
from attndrop_repro.data.tensor_augmentation import TensorAugmentation, translated


def splits_of(count: int = 22, channels: int = 3, size: int = 8, model_size: int = 0) -> Splits:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, channels, size, size), generator=generator)
    split = ImageSplit(
        "train",
        images.to(torch.uint8),
        torch.arange(count) % 2,
        torch.arange(count) + 100,
        ("a", "b"),
        image_size=model_size,
    )
    statistics = (0.5,) * channels
    return Splits(
        split, split, split, statistics, statistics, "", ("a", "b"), model_size or size, channels
    )


def all_of(batches: TrainingBatches, start: int = 0, stop: int = 6) -> list[Batch]:
    return list(batches.iterate(start, stop))


def make(splits: Splits | None = None, **options: object) -> TrainingBatches:
    augmentation = Augmentation(**options.pop("augmentation", {}))
    return TrainingBatches(
        splits or splits_of(), augmentation, **{"batch_size": 8, "seed": 0, **options}
    )


AUGMENTATIONS = {
    "none": {},
    "by batch": {"shift": 2, "crop_padding": 1, "flip": True},
    "by image": {"crop_padding": 2, "flip": True, "erasing": 0.9},
    "timm": {"auto": "rand-m9-mstd0.5-inc1", "random_resized_crop": (0.3, 1.0)},
    "torchvision": {"auto": "cifar10", "flip": True},
    "mixed": {"mixup": 0.8, "cutmix": 1.0, "shift": 1},
}


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_going_on_anywhere_gives_the_same_batches(name: str) -> None:
    augmentation = AUGMENTATIONS[name]
    whole = all_of(make(augmentation=augmentation))
    for start in (1, 2, 5):
        for one, other in zip(
            all_of(make(augmentation=augmentation), start), whole[start:], strict=True
        ):
            assert one.step == other.step
            assert np.array_equal(one.rows, other.rows)
            assert torch.equal(one.x, other.x)
            assert torch.equal(one.y, other.y)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_nothing_else_is_drawn_from(name: str) -> None:
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    before = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state())
    all_of(make(augmentation=AUGMENTATIONS[name]))
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]
    assert torch.equal(torch.get_rng_state(), before[2])


@pytest.mark.parametrize("name", ["by image", "timm"])
def test_workers_change_nothing(name: str) -> None:
    state = torch.get_rng_state()
    alone = all_of(make(augmentation=AUGMENTATIONS[name]))
    several = all_of(make(augmentation=AUGMENTATIONS[name], workers=2))
    assert all(torch.equal(a.x, b.x) for a, b in zip(alone, several, strict=True))
    assert torch.equal(torch.get_rng_state(), state)


def test_workers_do_not_repeat_each_other() -> None:
    """Public bug P09: forked workers with equal generators, the same every epoch."""
    splits = splits_of(40)
    same = splits.train.images[:1].expand(40, -1, -1, -1).contiguous()
    split = ImageSplit("train", same, splits.train.labels, splits.train.ids, ("a", "b"))
    splits = Splits(split, split, split, (0.5,) * 3, (0.5,) * 3, "", ("a", "b"), 8, 3)
    found = []
    for seed in (0, 0, 1):
        batches = make(splits, augmentation={"erasing": 1.0}, workers=2, seed=seed)
        images = torch.cat([batch.x for batch in all_of(batches, 0, 15)])
        found.append({image.numpy().tobytes() for image in images})
        assert len(found[-1]) > 115  # three epochs of 40 images: nearly all boxes differ
    assert found[0] == found[1]
    assert len(found[0] & found[2]) < 5


@pytest.mark.parametrize("name", ["by batch", "by image", "timm"])
def test_image_i_in_epoch_e_is_the_same_in_any_batch(name: str) -> None:
    def by_image(batch_size: int) -> dict[tuple[int, int], bytes]:
        batches = make(augmentation=AUGMENTATIONS[name], batch_size=batch_size)
        stop = 2 * batches.steps_per_epoch
        return {
            (batch.step // batches.steps_per_epoch, int(row)): image.numpy().tobytes()
            for batch in all_of(batches, 0, stop)
            for row, image in zip(batch.rows, batch.x, strict=True)
        }

    small, large = by_image(2), by_image(11)
    assert len(small) == len(large) == 44
    assert small == large
    assert sum(small[0, row] != small[1, row] for row in range(22)) > 15


def test_orders_differ_between_epochs_and_seeds_and_cover_all() -> None:
    one, other = make(batch_size=11), make(batch_size=11, seed=1)
    orders = [one.order(0).tolist(), one.order(1).tolist(), other.order(0).tolist()]
    assert all(sorted(order) == list(range(22)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3


def test_a_smaller_data_set_is_one_batch() -> None:
    batches = make(splits_of(5), batch_size=64)
    assert batches.steps_per_epoch == 1
    assert sorted(all_of(batches, 0, 1)[0].rows.tolist()) == [0, 1, 2, 3, 4]


def test_shares_make_up_the_batch_and_agree_with_one_process() -> None:
    whole = all_of(make(augmentation={"shift": 1}))
    shares = [all_of(make(augmentation={"shift": 1}, share=Share(r, 2))) for r in (0, 1)]
    for one, *parts in zip(whole, *shares, strict=True):
        assert torch.equal(one.x, torch.cat([part.x for part in parts]))
        assert torch.equal(one.y, torch.cat([part.y for part in parts]))


@pytest.mark.parametrize(
    ("count", "options", "words"),
    [
        (22, {"batch_size": 9, "share": Share(0, 2)}, "cannot share"),
        (1, {"share": Share(0, 2)}, "cannot feed 2 processes"),
        (22, {"batch_size": 7, "augmentation": {"mixup": 0.2}}, "even"),
        (22, {"augmentation": {"auto": "rand-nonsense"}}, "augmentation.auto"),
        (22, {"augmentation": {"auto": "nonsense"}}, "augmentation.auto"),
    ],
)
def test_what_cannot_be_is_refused(count: int, options: dict, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        all_of(make(splits_of(count), **options))
    assert "\n" not in str(caught.value)


def test_policies_need_colour() -> None:
    with pytest.raises(UsageError, match="colour"):
        make(splits_of(22, 1), augmentation={"auto": "cifar10"})


def shifted(image: Tensor, down: int, right: int) -> Tensor:
    out = torch.zeros_like(image)
    height, width = image.shape[-2:]
    for row in range(height):
        for column in range(width):
            if 0 <= row - down < height and 0 <= column - right < width:
                out[:, row, column] = image[:, row - down, column - right]
    return out


def test_translation_by_a_plain_loop() -> None:
    images = splits_of(9, 2, 5).train.images
    offsets = torch.tensor([[d, r] for d in (-2, 0, 1) for r in (-1, 0, 2)])
    found = translated(images, offsets, 2)
    for image, (down, right), moved in zip(images, offsets.tolist(), found, strict=True):
        assert torch.equal(moved, shifted(image, down, right))


def test_shifts_are_even_over_their_range() -> None:
    offsets = TensorAugmentation(Augmentation(shift=2), 5000, 0).offsets(0)
    for axis in (0, 1):
        counts = np.bincount(offsets[:, axis] + 2, minlength=5)
        assert abs(counts / 5000 - 0.2).max() < 0.02
    flips = TensorAugmentation(Augmentation(flip=True), 5000, 0).flips(0)
    assert abs(flips.mean() - 0.5) < 0.025


def test_erasing_rate_and_area() -> None:
    augmentation = ImageAugmentation(
        Augmentation(erasing=0.25), seed=0, size=32, mean=(0.5,) * 3, std=(0.1,) * 3
    )
    image = torch.zeros(3, 32, 32, dtype=torch.uint8)
    areas = np.array(
        [(augmentation(image, row, 0) > 0).any(0).float().mean().item() for row in range(800)]
    )
    assert abs((areas > 0).mean() - 0.25) < 0.05
    assert areas.max() <= 0.37
    assert areas[areas > 0].min() >= 0.01


def test_mixing_is_that_of_timm_and_labels_are_probabilities() -> None:
    batches = make(augmentation={"mixup": 0.5}, label_smoothing=0.1)
    plain = all_of(make(), 0, 2)
    for batch, original in zip(all_of(batches, 0, 2), plain, strict=True):
        assert batch.y.shape == (8, 2)
        assert torch.allclose(batch.y.sum(1), torch.ones(8))
        # x = lam a + (1 - lam) b with one lam, read off a pixel where a and b differ
        a, b = original.x, original.x.flip(0)
        lam = ((batch.x - b) / (a - b))[(a - b).abs() > 0.1]
        assert lam.std() < 1e-4
        hot = torch.nn.functional.one_hot(original.y, 2) * 0.9 + 0.05
        assert torch.allclose(batch.y, lam.mean() * hot + (1 - lam.mean()) * hot.flip(0), atol=1e-5)


def test_resized_and_in_float64() -> None:
    batch = all_of(make(splits_of(model_size=16), dtype=torch.float64), 0, 1)[0]
    assert batch.x.shape == (8, 3, 16, 16)
    assert batch.x.dtype == torch.float64
    assert 0 <= batch.x.min() <= batch.x.max() <= 1


def folder_splits(tmp_path: Path, count: int = 12) -> Splits:
    paths = []
    for number in range(count):
        path = tmp_path / f"{number}.png"
        Image.new("RGB", (20, 14), (number, 0, 0)).save(path)
        paths.append(str(path))
    split = ImageSplit(
        "train", Files(tuple(paths), 8, 0.875), torch.arange(count) % 2, torch.arange(count),
        ("a", "b"), image_size=8,
    )  # fmt: skip
    return Splits(split, split, split, (0.5,) * 3, (0.5,) * 3, "", ("a", "b"), 8, 3)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("crop", [None, (0.5, 1.0)])
def test_images_on_disk(tmp_path: Path, workers: int, crop: tuple[float, float] | None) -> None:
    splits = folder_splits(tmp_path)
    augmentation = {"random_resized_crop": crop, "flip": True}
    batches = make(splits, batch_size=4, augmentation=augmentation, workers=workers)
    for batch in all_of(batches, 0, 3):
        assert torch.equal((batch.x[:, 0, 4, 4] * 255).round().long(), torch.from_numpy(batch.rows))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_image_is_named_in_one_line(tmp_path: Path, workers: int) -> None:
    splits = folder_splits(tmp_path)
    (tmp_path / "7.png").write_bytes(b"broken")
    with pytest.raises(AttndropError, match=r"7\.png") as caught:
        all_of(make(splits, batch_size=4, workers=workers), 0, 3)
    assert "\n" not in str(caught.value)
    with pytest.raises(AttndropError, match=r"7\.png"):
        list(evaluation_batches(splits.test, 5, workers=workers))


@pytest.mark.parametrize("count", [1, 5, 8])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_evaluation_sees_every_image_once(count: int, world: int) -> None:
    split = splits_of(count).test
    seen = []
    for rank in range(world):
        for x, y, rows in evaluation_batches(split, 2, share=Share(rank, world)):
            assert len(x) <= 2
            assert torch.equal(x, split.pixels(rows))
            assert torch.equal(y, split.labels[rows])
            seen += rows.tolist()
    assert sorted(seen) == list(range(count))


def test_evaluation_of_files_with_workers(tmp_path: Path) -> None:
    split = folder_splits(tmp_path).test
    found = [rows.tolist() for _, _, rows in evaluation_batches(split, 5, workers=2)]
    assert found == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]
    whole = torch.cat([x for x, _, _ in evaluation_batches(split, 5, workers=2)])
    assert torch.equal(whole, split.pixels(slice(None)))


@pytest.mark.parametrize(
    "name", ["rand-m10-mstd0.5-inc1", "rand-m10-inc0", "original", "augmix-m10"]
)
def test_policies_at_full_strength(name: str) -> None:
    """timm asks Pillow for 0 bits of posterising there, which it refuses."""
    augmentation = ImageAugmentation(
        Augmentation(auto=name), seed=0, size=16, mean=(0.5,) * 3, std=(0.1,) * 3
    )
    image = splits_of(1, 3, 16).train.images[0]
    for row in range(150):
        assert augmentation(image, row, 0).shape == image.shape
