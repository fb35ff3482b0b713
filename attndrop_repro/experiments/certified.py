"""The valid bound for a run: its weights against those it started from, on its training images."""

from __future__ import annotations

from pathlib import Path

from attndrop_repro.config.progress import Progress
from attndrop_repro.store.store import Store
from attndrop_repro.theory.certificate import SCALES, Certificate, certify
from attndrop_repro.training.restore import load_run


def certified(
    store: Store,
    run_id: str,
    *,
    data_dir: Path | None = None,
    device: str = "cpu",
    draws: int = 50,
    delta: float = 0.05,
    progress: Progress | None = None,
) -> list[Certificate]:
    """One certificate for each scale of the weights' noise; together they hold with 1 - delta.

    Args:
        store: Where the run is.
        run_id: A finished run that kept the weights of epoch 0 (`training.snapshots`).
        data_dir: Folder with the data set's files.
        device: Where to compute.
        draws: Sampled networks for each scale.
        delta: Probability of failing.
        progress: What to report to.
    """
    trained = load_run(store, run_id, data_dir=data_dir, device=device)
    start = load_run(store, run_id, epoch=0, device=device, splits=trained.splits)
    initial = {name: p.detach().clone() for name, p in start.model.named_parameters()}
    train = trained.splits.train
    parameter = next(trained.model.parameters())
    images = train.pixels(slice(None), device=parameter.device, dtype=parameter.dtype)
    seed = 0 if trained.spec is None else trained.spec.seed
    return certify(
        trained.model, initial, images, train.labels.to(parameter.device), scales=SCALES,
        draws=draws, delta=delta, seed=seed, progress=progress,
    )  # fmt: skip
