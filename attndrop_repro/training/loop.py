"""The loop: steps, and when due validation, history, snapshots, checkpoints, and the way out."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.config.progress import Progress as Display
from attndrop_repro.config.recipe import Recipe
from attndrop_repro.data import Splits
from attndrop_repro.data.batches import Batch, TrainingBatches
from attndrop_repro.store.run_dir import RunDir
from attndrop_repro.training.board import Board
from attndrop_repro.training.checkpointing import Progress, capture
from attndrop_repro.training.guards import largest_that_fits, out_of_memory
from attndrop_repro.training.keeping import Best, Keeper, Learned
from attndrop_repro.training.signals import Interrupted, Watch
from attndrop_repro.training.trainer import Trainer
from attndrop_repro.training.validation import validate

Observer = Callable[[Batch, Tensor, float], None]
_SHOW_SECONDS = 0.5
_FAR_STEPS = 50  # between looks at what is on a device, or in other processes


@dataclass
class Loop:
    """A run in progress.

    Attributes:
        recipe: Its recipe.
        trainer: What steps change.
        batches: The training batches.
        splits: The data.
        run: The run's folder.
        keeper: Its checkpoints and weights.
        progress: Where it stands.
        display: What people see.
        watch: Signals received.
        workers: Loader processes for evaluation of images on disk.
        observe: Called after every step with the batch, the loss and the learning rate.
        board: TensorBoard, if the recipe asks for it; in the writing process only.
    """

    recipe: Recipe
    trainer: Trainer
    batches: TrainingBatches
    splits: Splits
    run: RunDir
    keeper: Keeper
    progress: Progress
    display: Display
    watch: Watch = field(default_factory=Watch)
    workers: int = 0
    observe: Observer | None = None
    board: Board | None = None
    _shown: float = field(default=0.0, init=False)
    _accuracy: float | None = field(default=None, init=False)

    def go(self) -> None:
        """From where it stands to the end.

        Raises:
            Interrupted: A signal came; a checkpoint is written.
            AttndropError: Numbers are not finite, memory or the disk is full, an image is damaged.
        """
        epoch_steps, total = self.batches.steps_per_epoch, self.trainer.total
        every = max(1, round(self.recipe.training.checkpoint_every * epoch_steps))
        if self.progress.step == 0:
            self._snapshot(0)
        clock = time.perf_counter()
        for batch in self.batches.iterate(self.progress.step, total):
            loss, rate = self._step(batch)
            self.progress.step = done = batch.step + 1
            if self.observe is not None:
                self.observe(batch, loss, rate)
            if self._due(done):
                self._check()
            now = time.perf_counter()
            self.progress.seconds += now - clock
            if done % epoch_steps == 0:
                self._check()
                self._end_epoch(done // epoch_steps, rate)
            if done % every == 0 or done == total:
                self._check()
                self._checkpoint()
            self._leave_if_asked(done)
            self._show(loss, done, total, now)
            # what validation and checkpoints take is not training time
            clock = time.perf_counter() if done % epoch_steps == 0 or done % every == 0 else now

    def _due(self, done: int) -> bool:
        machine = self.trainer.machine
        return (machine.synchronous and machine.alone) or done % _FAR_STEPS == 0

    def _step(self, batch: Batch) -> tuple[Tensor, float]:
        try:
            return self.trainer.step(batch)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            # the frames hold the activations that did not fit
            traceback.clear_frames(error.__traceback__)
        raise self._no_memory(batch)

    def _no_memory(self, batch: Batch) -> AttndropError:
        parts = self.recipe.training.accumulate
        size = -(-len(batch.x) // parts)
        self.trainer.forward = self.trainer.model  # without waiting for other processes

        def attempt(count: int) -> None:
            self.trainer.optimizer.zero_grad(set_to_none=True)
            part = Batch(batch.step, batch.rows[:count], batch.x[:count], batch.y[:count])
            self.trainer.gradients(part, parts=1)

        fits = largest_that_fits(attempt, size)
        where = self.trainer.machine.device
        if not fits:
            return AttndropError(f"out of memory on {where}: not even one image fits")
        fold = -(-len(batch.x) // fits)
        while self.recipe.training.batch_size % fold:
            fold += 1
        return AttndropError(
            f"out of memory on {where} with {size} images at once; {fits} fit: keep the batch size "
            f"with --set training.accumulate={fold}, or set training.batch_size={fits}"
        )

    def _check(self) -> None:
        found = self.trainer.guard.check()
        step, what = found if found is not None else (-1, "")
        if not self.trainer.machine.any(found is not None):
            return
        if found is None:
            raise AttndropError("another process met numbers that are not finite")
        rows = self.batches.rows(step)
        ids = self.splits.train.ids[torch.from_numpy(rows)].tolist()
        epoch = step // self.batches.steps_per_epoch + 1
        shown = ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")
        last = self.keeper.last_description()
        self.run.set_status(
            "failed", bad_step=step, bad_quantity=what, bad_rows=rows.tolist(), bad_ids=ids,
            last_good_checkpoint=last,
        )  # fmt: skip
        raise AttndropError(
            f"the {what} is not finite at step {step} (epoch {epoch}; training images {shown}); "
            f"last good checkpoint: {last}; try a lower training.lr or set training.clip_grad"
        )

    def _end_epoch(self, epoch: int, rate: float) -> None:
        trainer, progress = self.trainer, self.progress
        steps = self.batches.steps_per_epoch
        mean = trainer.machine.total(trainer.loss_sum) / (steps * trainer.machine.share.world)
        trainer.loss_sum = torch.zeros_like(trainer.loss_sum)
        found = validate(
            trainer, self.splits.validation, self.recipe.evaluation.batch_size, self.workers
        )
        self._accuracy = found.accuracy
        if found.accuracy > progress.best:
            progress.best, progress.best_epoch = found.accuracy, epoch
            if trainer.machine.main:
                learned = Learned.taken(trainer.weights(), trainer.handle.state_dict())
                self.keeper.best = Best(learned, epoch, progress.step, found.accuracy)
        row = {
            "epoch": epoch, "step": progress.step, "lr": rate, "train_loss": mean.item(),
            "validation_loss": found.loss, "validation_accuracy": found.accuracy,
        }  # fmt: skip
        trainer.machine.agree(lambda: self.run.append_history(row))
        if self.board is not None:
            self.board.add(row)
        self._snapshot(epoch)
        self._beat(force=True)

    def _snapshot(self, epoch: int) -> None:
        if epoch in self.recipe.training.snapshots:
            # the weights that gradients are taken at, not their average
            weights = self.trainer.model.network.state_dict()
            learned = Learned.taken(weights, self.trainer.handle.state_dict())
            self.trainer.machine.agree(lambda: self.keeper.snapshot(epoch, learned))

    def _checkpoint(self) -> None:
        tensors, state = capture(self.trainer, self.progress)
        self.trainer.machine.agree(lambda: self.keeper.checkpoint(tensors, state))

    def _leave_if_asked(self, done: int) -> None:
        machine = self.trainer.machine
        if not machine.alone and done % _FAR_STEPS:
            return  # all processes must ask together
        if not machine.any(self.watch.received is not None):
            return
        self._check()
        if done < self.trainer.total:
            self._checkpoint()
        number = self.watch.received or 15
        raise Interrupted(
            f"interrupted after step {done}; a checkpoint is written: the same command goes on",
            number,
        )

    def _beat(self, force: bool = False) -> None:
        if self.trainer.machine.main:
            self.run.heartbeat(
                force=force,
                epoch=self.progress.step // self.batches.steps_per_epoch,
                step=self.progress.step,
                best=self.progress.best_or_none,
            )

    def _show(self, loss: Tensor, done: int, total: int, now: float) -> None:
        if not self.trainer.machine.main or (now - self._shown < _SHOW_SECONDS and done < total):
            return
        self._shown = now
        self._beat()
        seconds, size = self.progress.seconds, self.batches.size
        rate = done * size / seconds if seconds else 0.0
        fields: dict[str, object] = {
            "epoch": -(-done // self.batches.steps_per_epoch),
            "epochs": self.recipe.training.epochs,
            "loss": float(loss),
            "images_per_second": rate,
        }
        if self._accuracy is not None:
            fields["accuracy"] = self._accuracy
        self.display.update(done, total, **fields)
