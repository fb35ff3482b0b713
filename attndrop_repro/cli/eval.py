"""`attndrop eval`: accuracy, NLL, Brier score and calibration error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from attndrop_repro.cli import options as opt
from attndrop_repro.cli.measuring import Target, measure, measures
from attndrop_repro.cli.session import session

if TYPE_CHECKING:
    from attndrop_repro.config.spec import RunSpec
    from attndrop_repro.evaluation.options import EvalOptions

EXAMPLE = "Example: attndrop eval --run last --split validation"

Corruption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Of the images: noise, blur, contrast, brightness, jpeg."),
]
Severity = Annotated[
    int | None, typer.Option(min=1, max=5, metavar="1..5", help="Of the corruption; default: 3.")
]
CorruptionDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where CIFAR-C or ImageNet-C has it; default: made here."),
]
Bins = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Of the calibration errors; default: the recipe's. With others they are metrics of "
        "their own, as in ece_5_bins, that reports do not show.",
    ),
]
FromLogits = Annotated[
    bool,
    typer.Option(
        "--from-logits",
        help="Compute anew from stored logits, without a model; one from elsewhere is named by "
        "--run, as its rows are.",
    ),
]


def judging(kind: str, says: str) -> Callable[..., None]:
    """`eval` or `calibrate`: the same options.

    Args:
        kind: Which of them.
        says: What its help begins with.
    """

    @measures
    def command(
        context: typer.Context,
        whom: Target,
        corruption: Corruption = None,
        severity: Severity = None,
        corruption_dir: CorruptionDir = None,
        bins: Bins = None,
        from_logits: FromLogits = False,
        batch_size: opt.BatchSize = None,
        workers: opt.Workers = None,
        as_json: opt.Json = False,
    ) -> None:
        said = (corruption, severity, corruption_dir)

        def options(spec: RunSpec | None) -> EvalOptions:
            known = _judged(kind, spec, whom.split, said, bins)
            return replace(
                known,
                batch_size=batch_size or known.batch_size,
                workers=known.workers if workers is None else workers,
            )

        target = replace(whom, from_logits=from_logits)
        measure(session(context), kind, target, options, lambda spec: (None,), as_json=as_json)

    command.__doc__ = says
    return command


def _judged(
    kind: str,
    spec: RunSpec | None,
    split: str | None,
    corruption: tuple[str | None, int | None, Path | None],
    bins: int | None,
) -> EvalOptions:
    """Options of `eval` and `calibrate`: the recipe's, but for what was said.

    Args:
        kind: Which of them.
        spec: The run; None: a model from elsewhere.
        split: What the model is judged on.
        corruption: Name, severity, and the folder that has it.
        bins: Of the calibration error.

    Raises:
        UsageError: A severity or folder without a corruption.
    """
    from attndrop_repro.config.errors import UsageError
    from attndrop_repro.evaluation.options import default_options

    name, severity, folder = corruption
    if name is None and (severity is not None or folder is not None):
        raise UsageError("--severity and --corruption-dir need --corruption NAME as well")
    known = cast("EvalOptions", default_options(kind, spec.recipe if spec else None))
    return replace(
        known,
        split=split or known.split,
        bins=bins or known.bins,
        corruption=None if name is None else (name, severity or 3),
        corruption_dir=folder,
    )


command = judging(
    "eval", "Measure accuracy, NLL, Brier score and calibration error; keep the logits."
)
