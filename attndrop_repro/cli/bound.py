"""`attndrop bound`: the PAC-Bayes bound as the paper prints it, and a valid one for a run."""

from __future__ import annotations

from typing import Annotated

import typer

from attndrop_repro.cli.options import DataDir, Device, Json
from attndrop_repro.cli.session import session

EXAMPLE = "Example: attndrop bound --sigma 0.2 --sigma 0.3 --run last"


def command(
    context: typer.Context,
    sigma: Annotated[
        list[float] | None,
        typer.Option(
            metavar="S",
            help="Of the noise, for the printed bound; repeat it; default: a grid around 0.242.",
        ),
    ] = None,
    empirical_risk: Annotated[
        float, typer.Option("--risk", metavar="R", help="Empirical risk, for the printed bound.")
    ] = 0.05,
    examples: Annotated[
        int, typer.Option(metavar="N", help="Training examples, for the printed bound.")
    ] = 50_000,
    heads: Annotated[int, typer.Option(metavar="H", help="For the printed bound.")] = 12,
    tokens: Annotated[int, typer.Option(metavar="n", help="For the printed bound.")] = 197,
    delta: Annotated[float, typer.Option(metavar="D", help="Chance that it fails.")] = 0.05,
    run: Annotated[
        str | None,
        typer.Option(
            metavar="ID|last", help="Also a valid bound for this run, at scales of its own."
        ),
    ] = None,
    draws: Annotated[
        int, typer.Option(min=1, metavar="N", help="Networks sampled for each scale, with --run.")
    ] = 50,
    data_dir: DataDir = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """The PAC-Bayes bound as printed, where it fails, and a valid one over a run's weights."""
    from attndrop_repro.cli.output import Column, emit_json, emit_table
    from attndrop_repro.theory import bound

    here = session(context)
    chosen = sigma or [0.1, 0.15, 0.2, 0.22, 0.24, 0.2419, 0.242, 0.3, 0.5]
    printed = [
        (s, bound.as_printed(s, empirical_risk, examples, delta, heads, tokens)) for s in chosen
    ]
    one, fails = bound.printed_limits(empirical_risk, examples, delta, heads, tokens)
    certificates = []
    if run is not None:
        from attndrop_repro.experiments.certified import certified

        store = here.known_store()
        run_id = store.find_run(run).run_id
        with here.progress("bound") as progress:
            certificates = certified(
                store, run_id, data_dir=data_dir, device=device, draws=draws, delta=delta,
                progress=progress,
            )  # fmt: skip
    if as_json:
        emit_json(
            {
                "printed": [
                    {"sigma": s, "kl": b.kl, "bound": b.value, "vacuous": b.vacuous,
                     "fails": b.fails}
                    for s, b in printed
                ],
                "exceeds_1_below_sigma": one,
                "fails_above_sigma": fails,
                "valid": [
                    {"s": c.scale, "kl": c.kl, "sampled_risk": c.sampled_risk,
                     "empirical_risk": c.empirical_risk, "bound": c.bound.value,
                     "vacuous": c.bound.vacuous, "n": c.n, "draws": c.draws, "delta": c.delta}
                    for c in certificates
                ],
            }
        )  # fmt: skip
        return
    print("As printed (theorem 1 with the KL to a point mass):")
    emit_table(
        [Column("sigma", right=True), Column("KL", right=True), Column("bound", right=True),
         Column("what it says", prose=True)],
        [(f"{s:g}", f"{b.kl:,.0f}", "-" if b.fails else f"{b.value:.3f}", _word(b.fails, b.vacuous))
         for s, b in printed],
    )  # fmt: skip
    print(f"It exceeds 1 below sigma = {one:.4f} and is not a number above {fails:.6f} (E7).")
    if certificates:
        print(f"\nValid, for {run_id}: weights with noise s, against the initial weights:")
        emit_table(
            [Column("s", right=True), Column("KL", right=True), Column("risk sampled", right=True),
             Column("bound", right=True), Column("what it says", prose=True)],
            [(f"{c.scale:g}", f"{c.kl:,.0f}", f"{c.sampled_risk:.3f}", f"{c.bound.value:.3f}",
              c.verdict) for c in certificates],
        )  # fmt: skip
        print(
            f"All hold together with probability {1 - delta:g}; {certificates[0].n} training "
            f"images, {draws} networks for each s."
        )


def _word(fails: bool, vacuous: bool) -> str:
    if fails:
        return "the root of a negative number"
    return "vacuous" if vacuous else "a risk below it, if the KL were one"
