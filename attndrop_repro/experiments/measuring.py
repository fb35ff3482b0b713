"""Measures trained runs: which ones, with which options, and only what is not there yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.config.load import load_recipe
from attndrop_repro.config.paths import recipe_names
from attndrop_repro.config.progress import Progress
from attndrop_repro.config.spec import RunSpec
from attndrop_repro.experiments.where import Where
from attndrop_repro.store import Store

if TYPE_CHECKING:
    from attndrop_repro.data import Splits
    from attndrop_repro.evaluation.options import Options
    from attndrop_repro.store.schema import Measurement

Epochs = tuple[int | None, ...]  # None: the final weights


@dataclass(frozen=True)
class Measured:
    """What one run came to.

    Attributes:
        run_id: The run.
        rows: What was measured now; none where all of it was there.
        error: Why it could not be, in one line; empty if it could.
    """

    run_id: str
    rows: Sequence[Measurement]
    error: str = ""


@dataclass
class Measurer:
    """Loads runs one after the other, and data that several of them share only once."""

    store: Store
    where: Where
    _splits: dict[str, Splits] = field(default_factory=dict)

    def measure(
        self,
        kind: str,
        spec: RunSpec,
        options: Options,
        epochs: Epochs,
        *,
        progress: Progress,
        force: bool = False,
        suite: str = "",
    ) -> list[Measurement]:
        """Measures a run at some epochs' weights; what the store has is skipped unless forced.

        Raises:
            AttndropError: It did not keep one of the epochs: none is measured then.
        """
        from attndrop_repro.evaluation.measure import measure
        from attndrop_repro.evaluation.wanted import Have, wanted
        from attndrop_repro.training.keeping import final_epoch
        from attndrop_repro.training.restore import kept_weights, load_run

        run = self.store.run_dir(spec.run_id)
        for epoch in epochs:
            kept_weights(run, epoch)
        have, found = Have(self.store), []
        for epoch in epochs:
            of = final_epoch(run) if epoch is None else epoch
            at: dict[str, Any] = {} if of is None else {"epoch": of}
            if not force and have.all(spec.run_id, [{**w, **at} for w in wanted(options)]):
                continue
            subject = load_run(
                self.store, spec.run_id, epoch=epoch, device=self.where.device,
                splits=self._data(spec),
            )  # fmt: skip
            found += measure(
                kind, subject, self.store, run_id=spec.run_id, options=options,
                progress=progress, force=force, suite=suite,
            )  # fmt: skip
        return found

    def recompute(self, spec: RunSpec, options: Options) -> list[Measurement]:
        """The metrics of a run from its stored logits."""
        from attndrop_repro.evaluation.options import EvalOptions
        from attndrop_repro.evaluation.recompute import recompute

        assert isinstance(options, EvalOptions)  # only eval and calibrate offer it
        return recompute(spec.run_id, self.store, options)

    def _data(self, spec: RunSpec) -> Splits:
        from attndrop_repro import data

        key = spec.recipe.data.model_dump_json()
        if key not in self._splits:
            self._splits[key] = data.load(
                spec.recipe.data, data_dir=self.where.data_dir, download=self.where.download
            )
        return self._splits[key]


def chosen(store: Store, run: str | None, recipe: str | None) -> list[RunSpec]:
    """The runs that a command is about.

    Args:
        store: Where they are.
        run: An id, a beginning of one, "last"; None or "all": every finished one.
        recipe: Only runs of this recipe, by name or file.

    Raises:
        UsageError: There is no such run or recipe, no finished run, or the one that is named is
            not finished.
    """
    if run not in (None, "all"):
        folder = store.find_run(run)
        state = folder.state()
        if state != "finished":
            raise UsageError(
                f"{folder.run_id} is {state}, not finished: attndrop runs show says how to go on"
            )
        specs = [folder.spec()]
    else:
        finished = (info for info in store.runs() if info.status == "finished")
        specs = [info.spec for info in finished if info.spec is not None]
    if recipe is not None:
        known = {spec.recipe.name for spec in specs} | set(recipe_names())
        name = recipe if recipe in known else load_recipe(recipe).name
        specs = [spec for spec in specs if spec.recipe.name == name]
    if not specs:
        of = f" of {recipe}" if recipe else ""
        raise UsageError(f"no finished run{of} in {store.root}: start with attndrop train")
    return specs


def measure_all(
    kind: str,
    specs: Sequence[RunSpec],
    options: Callable[[RunSpec], Options],
    epochs: Callable[[RunSpec], Epochs],
    measurer: Measurer,
    *,
    show: Callable[[str], AbstractContextManager[Progress]],
    force: bool = False,
    from_logits: bool = False,
) -> Iterator[Measured]:
    """Measures runs one after the other; one that fails stops no other.

    Args:
        kind: "eval", "calibrate", "attack" or "gradvar".
        specs: The runs.
        options: What to measure of a run.
        epochs: At which weights, likewise.
        measurer: Loads and measures.
        show: Shows the progress of what it is told the name of.
        force: Measure again what is there.
        from_logits: Compute from stored logits, without a model (eval and calibrate).
    """
    for spec in specs:
        try:
            with show(f"{kind} {spec.run_id}") as progress:
                if from_logits:
                    rows = measurer.recompute(spec, options(spec))
                    yield Measured(spec.run_id, rows)
                    continue
                rows = measurer.measure(
                    kind, spec, options(spec), epochs(spec),
                    progress=progress, force=force,
                )  # fmt: skip
        except UsageError:
            raise  # what was asked for is wrong for every run
        except AttndropError as error:
            if getattr(error, "exit_code", 1) > 128:
                raise
            yield Measured(spec.run_id, (), str(error))
        else:
            yield Measured(spec.run_id, rows)
