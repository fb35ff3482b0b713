"""Two methods with one seed start from the same weights and see the same batches; the stream of the
regulariser is its own."""

from pathlib import Path
from typing import Any

import pytest
import torch
from support.tiny_run import Steps, spec_of, trained

from attndrop_repro.randomness import derive
from attndrop_repro.store import Store
from attndrop_repro.training import train
from attndrop_repro.training.restore import load_run

AUGMENTED = {"training": {"augmentation": {"shift": 1, "mixup": 0.3}, "snapshots": [0]}}


def test_methods_are_paired(tmp_path: Path) -> None:
    specs = [spec_of(m, **AUGMENTED) for m in ("none", "dropout", "dropconnect", "rdrop")]
    ends = [trained(tmp_path, spec) for spec in specs]
    first = ends[0].steps
    assert len(first.rows) == 18
    for end in ends[1:]:
        assert end.steps.rows == first.rows
        assert end.steps.pixels == first.pixels
        assert end.steps.rates == first.rates
        assert end.steps.losses != first.losses
    store = Store(tmp_path)
    starts = [load_run(store, spec.run_id, epoch=0).model.state_dict() for spec in specs]
    assert all(torch.equal(start[n], starts[0][n]) for start in starts for n in start)


def test_seeds_are_not(tmp_path: Path) -> None:
    one, two = (trained(tmp_path, spec_of(seed=seed, **AUGMENTED)) for seed in (0, 1))
    assert one.steps.rows != two.steps.rows
    assert not one.same_as(two)


def test_the_same_run_twice_is_the_same(tmp_path: Path) -> None:
    one, two = (trained(tmp_path / name, spec_of("dropout")) for name in "ab")
    assert one.same_as(two)
    assert one.steps == two.steps


def state_after(root: Path, method: str, **training: Any) -> torch.Tensor:
    """The default generator's state when the last step is done."""
    states = []

    class Look(Steps):
        def __call__(self, *arguments: Any) -> None:
            states.append(torch.get_rng_state())

    train(spec_of(method, training=training), Store(root), device="cpu", observe=Look())
    return states[-1]


@pytest.mark.parametrize(
    "augmentation",
    [{}, {"shift": 1, "flip": True}, {"mixup": 0.3, "cutmix": 1.0}, {"erasing": 0.5}],
)
def test_nothing_but_a_method_draws_from_the_regulariser(
    tmp_path: Path, augmentation: dict[str, Any]
) -> None:
    untouched = torch.Generator().manual_seed(derive(0, "regulariser")).get_state()
    assert torch.equal(state_after(tmp_path, "none", augmentation=augmentation), untouched)
    drawn = state_after(tmp_path, "dropout", augmentation=augmentation)
    assert not torch.equal(drawn, untouched)


def test_a_caller_gets_its_generator_and_threads_back(tmp_path: Path) -> None:
    torch.manual_seed(3)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    trained(tmp_path, spec_of("dropout", training={"epochs": 1}, runtime={"threads": threads + 1}))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()
