"""Options that several commands share, so that they mean and are called the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Json = Annotated[bool, typer.Option("--json", help="JSON on stdout, for programs.")]
Recipe = Annotated[
    str | None,
    typer.Option(metavar="NAME|FILE", help="Only runs of this recipe."),
]
DataDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where the data set's files are."),
]
Device = Annotated[
    str,
    typer.Option(metavar="DEVICE", help="auto, cpu, cuda, cuda:1, mps."),
]
Download = Annotated[
    bool, typer.Option("--download", help="Fetch the data set if it is not there.")
]
Precision = Literal["fp64", "fp32", "bf16", "fp16"]
Resume = Literal["auto", "must", "never"]
