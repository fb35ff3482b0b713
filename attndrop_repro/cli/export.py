"""`attndrop export`: a run's weights for timm."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attndrop_repro.cli.session import session

EXAMPLE = "Example: attndrop export --run last --out model.safetensors"


def command(
    context: typer.Context,
    run: Annotated[str, typer.Option(metavar="ID|last", help="An id or a beginning of one.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to; it must not exist yet.")],
    epoch: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="A snapshot; default: the final weights.")
    ] = None,
) -> None:
    """Write a run's weights as plain timm weights, in safetensors."""
    from attndrop_repro.training.export import export

    here = session(context)
    found = here.known_store().find_run(run)
    count = export(found, out, epoch=epoch)
    model = found.spec().recipe.model
    arguments = "".join(f", {key}={value!r}" for key, value in model.args.items())
    here.say(f"{count} tensors of {found.run_id}, for {model.name}{arguments}")
    print(out)
