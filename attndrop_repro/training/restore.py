"""A trained run, ready to be measured."""

from __future__ import annotations

from pathlib import Path

from attndrop_repro import data, models
from attndrop_repro.adapters import Handle, apply
from attndrop_repro.config.errors import AttndropError
from attndrop_repro.config.spec import RunSpec
from attndrop_repro.data import Splits
from attndrop_repro.models import PixelModel, Subject
from attndrop_repro.store.run_dir import RunDir
from attndrop_repro.store.store import Store
from attndrop_repro.training.keeping import final_epoch, final_weights, load_learned
from attndrop_repro.training.machine import chosen_device


def load_run(
    store: Store,
    run_id: str,
    *,
    data_dir: Path | str | None = None,
    epoch: int | None = None,
    device: str = "cpu",
    splits: Splits | None = None,
) -> Subject:
    """A run's model with its data.

    Args:
        store: Where the run is.
        run_id: Its name.
        data_dir: Folder with the data set's files.
        epoch: A snapshot's epoch, or that of the final weights; None: the final weights, and the
            run must be finished.
        device: Where to put the model.
        splits: Its data, if they are loaded already.

    Raises:
        AttndropError: The run is not finished or did not keep that epoch, its weights are damaged,
            or the data are not those that it was trained on.
    """
    run = store.run_dir(run_id)
    spec = run.spec()
    path = kept_weights(run, epoch)
    learned, state = load_learned(path)
    if splits is None:
        splits = data.load(spec.recipe.data, data_dir=data_dir)
    _same_data(run, splits)
    model = _model(spec, splits)
    model.network.load_state_dict(learned.weights)
    model = model.to(chosen_device(device)).eval()

    def make_handle() -> Handle:
        handle = apply(model, spec.method, spec.settings)
        handle.load_state_dict(learned.method_state)
        return handle

    columns = {**spec.columns(), "code_version": run.provenance().get("code_version")}
    return Subject(model, spec, columns, splits, make_handle, epoch=int(state["epoch"]))


def _model(spec: RunSpec, splits: Splits) -> PixelModel:
    model = models.build_for(spec.recipe.model, splits, spec.seed)
    return model.double() if spec.recipe.runtime.precision == "fp64" else model


def kept_weights(run: RunDir, epoch: int | None = None) -> Path:
    """Where a run has the weights of an epoch; None: the final ones, and it must be finished."""
    status = run.status().get("status")
    if epoch is None:
        if status != "finished":
            raise AttndropError(f"{run.run_id} is {status or 'new'}, not finished: train it first")
        return final_weights(run)
    kept = run.snapshots()
    if epoch not in kept:
        final = final_epoch(run) if status == "finished" else None
        if epoch == final:
            return final_weights(run)
        if final is not None:
            kept = sorted({*kept, final})
        shown = ", ".join(map(str, kept)) or "none"
        raise AttndropError(
            f"{run.run_id} kept no weights of epoch {epoch}; it kept: {shown} (training.snapshots)"
        )
    return run.snapshot(epoch)


def _same_data(run: RunDir, splits: Splits) -> None:
    known = run.provenance().get("data", {}).get("checksum")
    if known is not None and known != splits.checksum:
        raise AttndropError(
            f"{run.run_id} was trained on other data, of checksum {known[:12]}; these have "
            f"{splits.checksum[:12]}: point --data-dir to the files that it was trained on"
        )
