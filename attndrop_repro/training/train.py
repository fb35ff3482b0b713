"""`train`: one run, from its specification to finished weights; resumed wherever it was left."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from attndrop_repro import data, models
from attndrop_repro.adapters import Handle, apply
from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.config.progress import Progress as Display
from attndrop_repro.config.progress import Silent
from attndrop_repro.config.spec import RunSpec
from attndrop_repro.data.batches import HeldOut, TrainingBatches
from attndrop_repro.randomness import seed_regulariser
from attndrop_repro.store.run_dir import RunDir
from attndrop_repro.store.schema import Measurement
from attndrop_repro.store.store import Store
from attndrop_repro.training.board import Board
from attndrop_repro.training.borrowing import borrowed_generators
from attndrop_repro.training.checkpointing import Progress, reinstate
from attndrop_repro.training.claiming import broken, finished, sole_trainer
from attndrop_repro.training.keeping import Keeper, Learned
from attndrop_repro.training.loop import Loop, Observer
from attndrop_repro.training.machine import Machine, lost_contact, numerics
from attndrop_repro.training.provenance import provenance
from attndrop_repro.training.signals import Interrupted, watching
from attndrop_repro.training.trainer import Trainer

Resume = Literal["auto", "must", "never"]


@dataclass(frozen=True)
class RunResult:
    """How a training ended.

    Attributes:
        run_id: The run's name.
        status: "finished".
        already_finished: Whether there was nothing left to do.
    """

    run_id: str
    status: str
    already_finished: bool = False


def train(
    spec: RunSpec,
    store: Store,
    *,
    data_dir: Path | str | None = None,
    device: str = "auto",
    workers: int = 0,
    resume: Resume = "auto",
    progress: Display | None = None,
    suite: str = "",
    download: bool = False,
    init_from: Path | None = None,
    observe: Observer | None = None,
) -> RunResult:
    """Trains a run, or what is left of it.

    Bit by bit the result is the same however often it was killed on the way (one machine, equal
    threads). Test images are never looked at.

    Args:
        spec: The run.
        store: Where its folder and its numbers go.
        data_dir: Folder with the data set's files.
        device: "auto", "cpu", "cuda", "cuda:1", "mps".
        workers: Loader processes, for images that are handled one at a time.
        resume: "auto": go on where it stopped, if it has begun; "must": it must have begun;
            "never": begin anew.
        progress: Told what happens.
        suite: The suite on whose behalf.
        download: Gets missing data, where that is possible.
        init_from: File of weights to start from; `spec.init_from` is its hash.
        observe: Called after every step with the batch, the loss and the learning rate.

    Returns:
        Its name, and whether it was finished already.

    Raises:
        Interrupted: SIGTERM or Ctrl-C; a checkpoint is written.
        AttndropError: It cannot go on; the run is marked as failed.
    """
    display = progress or Silent()
    if os.environ.get("RANK", "0") != "0":
        display = Silent()  # of several processes one talks
    run = store.run_dir(spec.run_id)
    if resume != "never" and finished(run):
        return _nothing_to_do(spec, display)
    borrowed = borrowed_generators()
    with numerics(spec.recipe.runtime), borrowed as exceptions, ExitStack() as held:
        machine = Machine(spec.recipe.runtime, device)
        torch.set_num_threads(spec.recipe.runtime.threads)  # accelerate may have set its own
        splits = data.load(spec.recipe.data, data_dir=data_dir, download=download)
        loop = _prepared(spec, splits, machine, run, display, workers, init_from)
        held.callback(loop.trainer.handle.remove)
        loop.observe = observe
        facts = provenance(
            spec, splits, machine.device, machine.share.world, loop.trainer.handle.passes
        )
        if not _claimed(loop, held, resume):
            return _nothing_to_do(spec, display)
        try:
            _start(loop, store, spec, facts, resume, display)
            if spec.recipe.runtime.tensorboard and machine.main:
                loop.board = Board(run.path / "tensorboard", loop.progress.step + 1)
                held.callback(loop.board.close)
            with watching() as loop.watch:
                loop.go()
            if exceptions and machine.main:
                store.begin_run(spec, {**facts, "nondeterministic": sorted(exceptions)})
            _finish(loop, store, spec, suite)
        except Interrupted as interruption:
            _tell(loop, "interrupted", interruption)
            raise
        except (AttndropError, KeyboardInterrupt) as error:
            _tell(loop, "failed", error)
            raise
        except RuntimeError as error:
            if machine.alone or not lost_contact(error):
                raise
            lost = AttndropError(
                "lost contact with another process of this job: start the job again, it goes on "
                f"{loop.keeper.last_description()}"
            )
            _tell(loop, "failed", lost)
            raise lost from error
    return RunResult(spec.run_id, "finished")


def _nothing_to_do(spec: RunSpec, display: Display) -> RunResult:
    display.say(f"{spec.run_id} is finished already (anew: --resume never)")
    return RunResult(spec.run_id, "finished", already_finished=True)


def _prepared(
    spec: RunSpec,
    splits: data.Splits,
    machine: Machine,
    run: RunDir,
    display: Display,
    workers: int,
    init_from: Path | None,
) -> Loop:
    recipe = spec.recipe
    batches = TrainingBatches(
        splits, recipe.training.augmentation, batch_size=recipe.training.batch_size,
        seed=spec.seed, label_smoothing=recipe.training.label_smoothing, device=machine.device,
        dtype=machine.dtype, workers=workers, share=machine.share,
    )  # fmt: skip
    model = models.build_for(recipe.model, splits, spec.seed)
    if (init_from is None) != (spec.init_from is None):
        raise UsageError(
            "the run's specification and --init-from must both name weights, or neither"
        )
    if init_from is not None:
        for note in models.start_from(model, init_from, spec.init_from):
            display.say(note)
    model = model.to(machine.device)
    if machine.dtype == torch.float64:
        model = model.double()
    # a learning method takes its own initial values from the stream's seed: equal on all ranks
    seed_regulariser(spec.seed)
    handle = apply(model, spec.method, spec.settings)
    _place_learner(handle, machine)
    held_out = HeldOut(splits.validation, batches.size // machine.share.world, spec.seed)
    trainer = Trainer(model, handle, recipe.training, machine, batches.steps_per_epoch, held_out)
    return Loop(
        recipe, trainer, batches, splits, run, Keeper(run, batches.steps_per_epoch), Progress(),
        display, workers=workers,
    )  # fmt: skip


def _place_learner(handle: Handle, machine: Machine) -> None:
    learner = handle.method.learner()
    if learner is not None:
        learner.modules().to(machine.device, machine.dtype)


def _claimed(loop: Loop, held: ExitStack, resume: Resume) -> bool:
    """Makes the run this job's alone; what is refused here changes nothing of the run.

    Returns:
        Whether there is something to do: another job may have finished it meanwhile.
    """
    run, machine = loop.run, loop.trainer.machine
    if resume == "must" and not run.exists():
        raise UsageError(f"{run.run_id} has not begun, so there is nothing to resume")
    done: list[bool] = []

    def attempt() -> None:
        held.enter_context(sole_trainer(run))
        done.append(resume != "never" and finished(run))

    machine.agree(attempt)
    return not machine.any(any(done))


def _start(
    loop: Loop,
    store: Store,
    spec: RunSpec,
    facts: dict[str, object],
    resume: Resume,
    display: Display,
) -> None:
    machine, keeper = loop.trainer.machine, loop.keeper
    if resume == "never" and loop.run.exists():
        machine.agree(keeper.forget)
    elif machine.main and loop.run.status().get("status") == "finished":
        display.say(f"{broken(loop.run)}: the weights are made anew")
    machine.wait()
    seed_regulariser(spec.seed, machine.share.rank)
    found, damaged = keeper.latest()
    for reason in damaged if machine.main else ():
        display.say(f"passed over: {reason}")
    if found is not None:
        loop.progress = reinstate(loop.trainer, found.tensors, found.state)
        if machine.main:
            display.say(f"goes on {keeper.last_description()}")
        if found.state["processes"] != machine.share.world:
            display.say(
                f"{found.state['processes']} processes wrote the checkpoint, {machine.share.world} "
                "go on: masks are drawn anew from here"
            )
    elif resume == "must":
        raise AttndropError(f"{spec.run_id} has no whole checkpoint to resume from")
    elif damaged:
        display.say("no whole checkpoint is left: begins anew")
    machine.wait()
    done = loop.progress.step // loop.batches.steps_per_epoch
    machine.agree(lambda: _announce(loop, store, spec, facts, done))


def _announce(loop: Loop, store: Store, spec: RunSpec, facts: dict[str, object], done: int) -> None:
    store.begin_run(spec, facts)
    loop.run.keep_history(lambda row: row["epoch"] <= done)
    loop.run.set_status(
        "running", epoch=done, epochs=spec.recipe.training.epochs, step=loop.progress.step,
        steps=loop.trainer.total, best=loop.progress.best_or_none,
    )  # fmt: skip


def _finish(loop: Loop, store: Store, spec: RunSpec, suite: str) -> None:
    machine, training = loop.trainer.machine, spec.recipe.training

    def write() -> None:
        learned = Learned.taken(loop.trainer.weights(), loop.trainer.handle.state_dict())
        epoch = loop.keeper.finish(learned, loop.progress, training.epochs, training.select)
        loop.run.set_status(
            "finished", epoch=training.epochs, step=loop.trainer.total, best=loop.progress.best,
            best_epoch=loop.progress.best_epoch, weights_epoch=epoch,
        )  # fmt: skip
        store.write(spec.run_id, _measured(loop), suite=suite, device=machine.device.type)

    machine.agree(write)


def _measured(loop: Loop) -> list[Measurement]:
    epochs = loop.recipe.training.epochs
    seconds = loop.progress.seconds
    images = loop.trainer.total * loop.batches.size
    shared: Measurement = {"split": "train", "epoch": epochs, "n": len(loop.splits.train)}
    found: list[Measurement] = [
        {**shared, "metric": "train_seconds", "value": seconds},
        {**shared, "metric": "images_per_second", "value": images / seconds if seconds else 0.0},
    ]
    if loop.trainer.machine.device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(loop.trainer.machine.device) / 2**20
        found.append({**shared, "metric": "peak_memory_mb", "value": peak})
    return found


def _tell(loop: Loop, status: Literal["failed", "interrupted"], error: BaseException) -> None:
    if not loop.trainer.machine.main or not loop.run.exists():
        return
    message = str(error) or type(error).__name__
    with suppress(AttndropError):  # the disk is full: the error that is on its way says so
        loop.run.set_status(status, message=message, step=loop.progress.step)
