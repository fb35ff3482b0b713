"""Costs are ratios of interleaved steps; what they say is checked, how long they took is not."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.config.load import load_recipe
from attndrop_repro.config.recipe import Model
from attndrop_repro.evaluation import step_cost
from attndrop_repro.evaluation.memory_cost import resident_peak_mb
from attndrop_repro.evaluation.step_cost import NOISE, PLAIN, UNFUSED, Contender, Steps, interleaved
from attndrop_repro.evaluation.workload import Workload
from attndrop_repro.experiments import bench
from attndrop_repro.methods import registry

WORK = Workload(
    Model(
        name="vit_tiny_patch16_224",
        args={"patch_size": 2, "embed_dim": 16, "depth": 2, "num_heads": 2, "mlp_ratio": 1},
    ),
    classes=4, image_size=8, channels=1, batch_size=3,
)  # fmt: skip


class SteppedClock:
    """Every contender's step takes what it is told to; nothing depends on this machine."""

    def __init__(self, seconds):
        self.seconds = iter(seconds)

    def time(self, call):
        call()
        return next(self.seconds)


def test_ratio_is_the_median_over_rounds_of_the_step_over_the_plain_step(monkeypatch):
    # three contenders in turning order; the machine is twice as slow in the second round
    monkeypatch.setattr(
        step_cost, "Clock", lambda device: SteppedClock([1, 1, 1.5, 2, 3, 2, 1.5, 1, 1.0])
    )
    costs = interleaved(Steps(*WORK.make()), [Contender("dropkey", "dropkey")], rounds=3, warmup=0)
    by = {cost.contender.label: cost for cost in costs}
    assert list(by) == [PLAIN, NOISE, "dropkey"]
    assert by["dropkey"].ratio == pytest.approx(1.5)
    assert by[NOISE].ratio == pytest.approx(1.0)
    assert by[PLAIN].ratio == 1
    assert by["dropkey"].images_per_second == pytest.approx(3 / 1.5)
    assert math.isnan(by["dropkey"].unfused_ratio)


def test_steps_change_no_weights_and_leave_the_model_plain():
    model, x, y = WORK.make()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    classes = [type(module) for module in model.modules()]
    chosen = bench.contenders(["rdrop", "attendout"])
    interleaved(Steps(model, x, y), chosen, rounds=3, warmup=1)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert [type(module) for module in model.modules()] == classes


def test_every_method_is_compared():
    labels = {contender.label for contender in bench.contenders()}
    alone = set(registry.names()) - {"consistency"}
    assert alone <= labels
    assert {"attentiondrop-blur+consistency", UNFUSED} <= labels


def test_rows_measurements_and_the_papers_own_ratios():
    rows = bench.bench(WORK, bench.contenders(["attentiondrop-blur"]), rounds=3, memory=False)
    assert [row.label for row in rows] == [PLAIN, NOISE, "attentiondrop-blur", UNFUSED]
    blur = rows[2]
    assert blur.paper_ratio == pytest.approx(320 / 300)
    assert blur.unfused_ratio > 0
    found = bench.measurements(rows, WORK)
    metrics = {m["metric"] for _, batch in found for m in batch}
    assert metrics == {"step_time_ratio", "images_per_second"}  # no memory was asked for
    assert all(m["value"] > 0 and m["n"] == 3 for _, batch in found for m in batch)


def test_a_method_that_the_model_cannot_take_is_a_row_with_its_reason():
    convolutional = dataclasses.replace(WORK, model=Model(name="test_resnet"), image_size=32)
    rows = bench.bench(
        dataclasses.replace(convolutional, channels=3),
        bench.contenders(["dropkey"]), rounds=3, memory=False,
    )  # fmt: skip
    row = next(row for row in rows if row.label == "dropkey")
    assert row.error
    assert math.isnan(row.ratio)


def test_workload_of_a_recipe_needs_no_data():
    work = bench.workload(load_recipe("digits-vit"), threads=1)
    assert (work.image_size, work.channels, work.classes) == (8, 1, 10)
    with pytest.raises(UsageError, match="no fixed shape"):
        bench.workload(load_recipe("digits-vit", ["data.name=imagefolder"]))


def test_a_device_that_is_not_there_is_one_line():
    with pytest.raises(AttndropError, match="cannot be used"):
        dataclasses.replace(WORK, device="nosuch").make()


def test_the_peak_of_a_process_never_falls():
    before = resident_peak_mb()
    block = torch.ones(2**24)  # 64 MiB
    after = resident_peak_mb()
    del block
    assert after >= before > 0
    assert resident_peak_mb() >= after
