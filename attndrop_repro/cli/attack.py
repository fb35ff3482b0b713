"""`attndrop attack`: robust accuracy in pixel units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from attndrop_repro.cli import options as opt
from attndrop_repro.cli.measuring import Target, measure, measures
from attndrop_repro.cli.session import session
from attndrop_repro.config.fractions import parse_fraction

if TYPE_CHECKING:
    from attndrop_repro.config.spec import RunSpec
    from attndrop_repro.evaluation.options import AttackOptions

EXAMPLE = "Example: attndrop attack --run last --eps 4/255 --eps 8/255 --restarts 5"


@measures
def command(
    context: typer.Context,
    whom: Target,
    eps: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SIZE", help="As in 8/255, pixels in [0, 1]; repeat it; default: the recipe's."
        ),
    ] = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(
            metavar="fgsm|pgd|autoattack",
            help="Repeat it for several; default: the recipe's, in l2 pgd.",
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Of PGD; default: 20.")
    ] = None,
    step_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Of PGD; default: 2/255, in l2 2.5 eps / steps."),
    ] = None,
    restarts: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Of PGD; the worst counts; default: 1.")
    ] = None,
    norm: Annotated[Literal["linf", "l2"], typer.Option(help="Of the perturbation.")] = "linf",
    target: Annotated[
        Literal["least-likely", "most-likely", "random"] | None,
        typer.Option(
            metavar="CLASS",
            help="Aim at a wrong class: least-likely, most-likely or random; default: at any.",
        ),
    ] = None,
    stochastic: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Regulariser on: means over N draws for every gradient."
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only the first N examples.")
    ] = None,
    save_adversarial: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the examples, and a picture of some.")
    ] = None,
    batch_size: opt.BatchSize = None,
    method: opt.Method = None,
    as_json: opt.Json = False,
) -> None:
    """Measure robust accuracy under FGSM, PGD or AutoAttack, each with an audit of the attack."""
    from attndrop_repro.evaluation.attack_setting import grid
    from attndrop_repro.evaluation.options import default_options

    sizes = [parse_fraction(size, "--eps", norm) for size in eps or ()]
    step = None if step_size is None else parse_fraction(step_size, "--step-size", norm)

    def options(spec: RunSpec | None) -> AttackOptions:
        from attndrop_repro.config.recipe import Evaluation

        asked = (spec.recipe.evaluation if spec else Evaluation()).attack
        known = cast("AttackOptions", default_options("attack", spec.recipe if spec else None))
        usual = asked.attacks if norm == "linf" else ("pgd",)  # fgsm is an attack in linf
        settings = grid(
            attack or usual,
            sizes or asked.eps,
            step_size=step or (asked.step_size if norm == "linf" else None),
            steps=steps or asked.steps,
            restarts=restarts or asked.restarts,
            norm=norm,
            target=target,
            draws=stochastic or 0,
        )
        folder = save_adversarial
        if folder is not None and spec is not None:
            folder = folder / spec.run_id
        return replace(
            known,
            settings=tuple(settings),
            split=whom.split or known.split,
            limit=limit or known.limit,
            batch_size=batch_size or known.batch_size,
            save_adversarial=folder,
        )

    here = session(context)

    def say_where(rows: Sequence[Mapping[str, Any]]) -> None:
        if save_adversarial is None:
            return
        runs = {str(row["run_id"]) for row in rows}
        if whom.elsewhere:
            place = str(save_adversarial)
        elif len(runs) == 1:
            place = str(save_adversarial / runs.pop())
        else:
            place = f"{save_adversarial}, in a folder for each run"
        count = sum(len(row["detail"]["adversarial"]) for row in rows)
        here.say(f"wrote {count} files of adversarial examples and pictures to {place}")

    measure(
        here, "attack", whom.regularised(method), options, lambda spec: (None,), as_json=as_json,
        after=say_where,
    )  # fmt: skip
