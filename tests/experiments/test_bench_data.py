"""The loader alone, the model alone, and what follows from the two rates."""

from __future__ import annotations

import math

import pytest
from support.datasets import write_folders
from support.tiny_run import spec_of

from attndrop_repro.experiments.bench_data import DataCost, bench_data, data_measurements
from attndrop_repro.store import Store


def cost(loader: float, model: float, workers: int, needed: int | None, cores: int = 4) -> DataCost:
    limit = "loader" if loader < model else "model"
    return DataCost("none", loader, model, limit, workers, needed, cores, 32, 15)


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (
            cost(500, 1200, 1, 3),
            "the loader is the limit: the loader gives 500 images/s, the model takes 1,200 "
            "(1 worker); 3 workers would suffice",
        ),
        (
            cost(900, 300, 0, 1),
            "the model is the limit: the loader gives 900 images/s, the model takes 300 "
            "(no workers, so they take turns); 1 worker would suffice",
        ),
        (
            cost(500, 1200, 2, 5),
            "the loader is the limit: the loader gives 500 images/s, the model takes 1,200 "
            "(2 workers); 5 workers would suffice, but there are 4 cores",
        ),
        (
            cost(90000, 1200, 0, None),
            "the model is the limit: the loader gives 90,000 images/s, the model takes 1,200; "
            "these data are in memory and use no workers",
        ),
    ],
)
def test_the_verdict_is_one_line(found, line):
    assert found.verdict == line


def test_data_in_memory_never_use_workers():
    found = bench_data(spec_of().recipe, workers=2, rounds=3)
    assert (found.workers, found.workers_needed, found.batch_size) == (0, None, 16)
    assert found.loader_images_per_second > 0
    assert found.model_images_per_second > 0


@pytest.mark.parametrize("workers", [0, 1])
def test_an_image_folder_goes_through_workers(tmp_path, workers):
    write_folders(tmp_path / "images", train=8)
    recipe = spec_of(
        data={"name": "imagefolder", "test": None, "train_images": None, "validation": 0.25,
              "image_size": 8},
        training={"batch_size": 6},
    ).recipe  # fmt: skip
    found = bench_data(
        recipe, method="dropkey", data_dir=tmp_path / "images", workers=workers, rounds=3
    )
    assert (found.workers, found.method, found.batch_size) == (workers, "dropkey", 6)
    one = found.loader_images_per_second / max(1, workers)
    assert found.workers_needed == math.ceil(found.model_images_per_second / one)
    slower = min(found.loader_images_per_second, found.model_images_per_second)
    assert (found.limit == "loader") == (slower == found.loader_images_per_second)


def test_the_store_has_both_rates(tmp_path):
    recipe, store = spec_of().recipe, Store(tmp_path)
    store.write_outside(*data_measurements(cost(500, 1200, 1, 3), recipe, "cpu"))
    frame = store.frame().set_index("metric")
    assert frame["value"].to_dict() == {
        "loader_images_per_second": 500, "model_images_per_second": 1200,
    }  # fmt: skip
    assert set(frame["recipe"]) == {"tiny"}
