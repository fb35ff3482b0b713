"""`attndrop gradvar`: the variance of the gradient, with and without the regulariser."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from attndrop_repro.cli import options as opt
from attndrop_repro.cli.measuring import Target, measure, measures
from attndrop_repro.cli.session import session

if TYPE_CHECKING:
    from attndrop_repro.config.spec import RunSpec
    from attndrop_repro.evaluation.options import GradvarOptions
    from attndrop_repro.experiments.measuring import Epochs

EXAMPLE = "Example: attndrop gradvar --run last --epoch 0 --epoch 25 --draws 8"

PerWhat = Literal["sample", "batch"]


@measures
def command(
    context: typer.Context,
    whom: Target,
    epoch: Annotated[
        list[int] | None,
        typer.Option(
            min=0, metavar="N", help="Of kept weights; repeat it; default: the recipe's epochs."
        ),
    ] = None,
    examples: Annotated[
        int | None, typer.Option(min=2, metavar="N", help="How many; default: the recipe's.")
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Perturbations of each; default: the recipe's."),
    ] = None,
    per: Annotated[
        PerWhat, typer.Option(help="Gradients of single examples or of batches (A15).")
    ] = "sample",
    perturbation: Annotated[
        PerWhat, typer.Option(help="A draw for each example, or one for a batch (A15).")
    ] = "sample",
    layers: Annotated[bool, typer.Option("--layers", help="Keep every layer's share too.")] = False,
    batch_size: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Examples in such a batch; default: 64.")
    ] = None,
    method: opt.Method = None,
    as_json: opt.Json = False,
) -> None:
    """Measure the gradient's variance in training mode, and the terms of the paper's lemma 1."""
    from attndrop_repro.config.errors import UsageError
    from attndrop_repro.evaluation.options import default_options
    from attndrop_repro.evaluation.wanted import measured_epochs, unkept_epochs

    if batch_size is not None and "batch" not in (per, perturbation):
        raise UsageError("--batch-size is of --per batch or --perturbation batch")

    def options(spec: RunSpec | None) -> GradvarOptions:
        known = cast("GradvarOptions", default_options("gradvar", spec.recipe if spec else None))
        return replace(
            known,
            split=whom.split or known.split,
            examples=examples or known.examples,
            draws=draws or known.draws,
            per=per,
            perturbation=perturbation,
            batch_size=batch_size or known.batch_size,
            layers=layers,
        )

    here = session(context)

    def epochs(spec: RunSpec) -> Epochs:
        if epoch:
            return tuple(epoch)
        found = measured_epochs("gradvar", spec.recipe)
        if absent := unkept_epochs(spec.recipe):
            kept = ", ".join("the final ones" if e is None else str(e) for e in found)
            these = "epoch" if len(absent) == 1 else "epochs"
            here.say(
                f"{spec.run_id} kept no weights of {these} {', '.join(map(str, absent))}; "
                f"measured: {kept}"
            )
        return found

    measure(here, "gradvar", whom.regularised(method), options, epochs, as_json=as_json)
