"""`attndrop bench`: what every method costs beside the plain model, and the training around it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from attndrop_repro.cli.options import DataDir, Download, Json, Precision
from attndrop_repro.cli.session import session
from attndrop_repro.config.errors import UsageError

EXAMPLE = "Example: attndrop bench --recipe digits-vit --rounds 5"

INSTEAD = "Instead of whole training steps"
_ANY = {"method", "device", "precision", "threads", "rounds", "as_json"}
_TRAINING = {*_ANY, "recipe", "overrides", "data_dir", "download", "workers"}
# what each kind of benchmark takes
_TAKES = {
    "steps": {
        *_ANY, "recipe", "model", "compiled", "batch_size", "image_size", "classes", "memory",
    },
    "attention": {*_ANY, "attention", "batch_size", "heads", "width"},
    "loop": {*_TRAINING, "loop"},
    "data": {*_TRAINING, "data"},
}  # fmt: skip


def command(
    context: typer.Context,
    recipe: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="Whose model; default: digits-vit.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="A timm model, without a recipe.")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(metavar="METHOD", help="Only these; repeat it; default: every method."),
    ] = None,
    device: Annotated[str, typer.Option(metavar="DEVICE", help="cpu, cuda, cuda:1, mps.")] = "cpu",
    precision: Annotated[
        Precision | None, typer.Option(help="bf16 and fp16 by autocast; default: the recipe's.")
    ] = None,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Time models compiled by torch.compile.")
    ] = False,
    batch_size: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Images a step; default: the recipe's.")
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Pixels a side, with --model.")
    ] = None,
    classes: Annotated[
        int | None, typer.Option(min=2, metavar="N", help="Classes, with --model.")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="CPU threads; default: all cores, with --loop and --data the recipe's.",
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=3, metavar="N", help="Timed steps of each method.")
    ] = 15,
    memory: Annotated[
        bool, typer.Option("--memory/--no-memory", help="Peak memory, each in its own process.")
    ] = True,
    as_json: Json = False,
    attention: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="One attention of N tokens, forward and backward: time and added memory of each "
            "method, in its own process, against torch's fused attention.",
            rich_help_panel=INSTEAD,
        ),
    ] = None,
    heads: Annotated[
        int, typer.Option(min=1, metavar="N", help="Of --attention.", rich_help_panel=INSTEAD)
    ] = 4,
    width: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Of a head, with it.", rich_help_panel=INSTEAD),
    ] = 64,
    loop: Annotated[
        bool,
        typer.Option(
            "--loop",
            help="The recipe's training, whole, against a bare loop that makes the same steps.",
            rich_help_panel=INSTEAD,
        ),
    ] = False,
    data: Annotated[
        bool,
        typer.Option(
            "--data",
            help="The loader alone and the steps alone: which is the limit, and how many workers "
            "would suffice.",
            rich_help_panel=INSTEAD,
        ),
    ] = False,
    workers: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Processes that load images, with --loop and --data.",
            rich_help_panel=INSTEAD,
        ),
    ] = 0,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Changes the recipe, with --loop and --data, as in data.train_images=1000.",
            rich_help_panel=INSTEAD,
        ),
    ] = None,
    data_dir: DataDir = None,
    download: Download = False,
) -> None:
    """Time and weigh training steps of every method against the plain model, interleaved.

    Each ratio is the median over rounds of a step over the plain model's of the same round.
    """
    from attndrop_repro.cli import benching

    kinds = {"attention": attention is not None, "loop": loop, "data": data}
    kind = _kind(context, [name for name, asked in kinds.items() if asked])
    here = session(context)
    here.goes_on = False
    if kind == "steps":
        benching.steps(
            here, recipe=recipe, model=model, method=method or (), device=device,
            precision=precision, compiled=compiled, batch_size=batch_size, image_size=image_size,
            classes=classes, threads=threads, rounds=rounds, memory=memory, as_json=as_json,
        )  # fmt: skip
    elif attention is not None:
        benching.attention(
            here, tokens=attention, batch=batch_size or 1, heads=heads, width=width,
            method=method or (), device=device, precision=precision or "fp32", threads=threads,
            rounds=rounds, as_json=as_json,
        )  # fmt: skip
    else:
        if method and len(method) > 1:
            raise UsageError(f"--{kind} trains with one method: give one --method")
        changes = list(overrides or ())
        if any(change.split("=")[0].strip() == "training.epochs" for change in changes):
            raise UsageError(f"--{kind} counts in rounds, not epochs: give --rounds")
        changes += [] if precision is None else [f"runtime.precision={precision}"]
        changes += [] if threads is None else [f"runtime.threads={threads}"]
        benching.training(
            here, kind, recipe=recipe, changes=changes, method=method[0] if method else None,
            device=device, data_dir=data_dir, download=download, workers=workers, rounds=rounds,
            as_json=as_json,
        )  # fmt: skip


def _kind(context: typer.Context, asked: list[str]) -> str:
    """What is to be benchmarked.

    Raises:
        UsageError: More than one thing, or an option that means nothing there.
    """
    if len(asked) > 1:
        names = " and ".join(f"--{name}" for name in asked)
        raise UsageError(f"{names} are different benchmarks: give one of them")
    kind = asked[0] if asked else "steps"
    for parameter in context.command.params:
        name: Any = parameter.name
        if name in _TAKES[kind] or name == "help" or not _given(context, name):
            continue
        option = parameter.opts[0]
        takers = [f"--{other}" for other in ("attention", "loop", "data") if name in _TAKES[other]]
        if asked:
            raise UsageError(f"{option} means nothing with --{kind}: leave it out")
        raise UsageError(f"{option} goes with {' or '.join(takers)} only")
    return kind


def _given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"
