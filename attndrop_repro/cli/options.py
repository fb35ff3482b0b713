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
Run = Annotated[
    str | None,
    typer.Option(
        metavar="ID|last|all",
        help="Which run; default: all finished ones that lack this measurement.",
    ),
]
Split = Annotated[
    str | None, typer.Option(metavar="SPLIT", help="Judged on: test, validation or train.")
]
BatchSize = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Images at a time: memory and time, no result."),
]
Workers = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="Processes that read images from disk.")
]
Force = Annotated[bool, typer.Option("--force", help="Measure again what is there.")]

ELSEWHERE = "A model from elsewhere"
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Its weights: safetensors or .pt.", rich_help_panel=ELSEWHERE
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|DIR", help="Its timm name, or a Hugging Face folder.",
        rich_help_panel=ELSEWHERE,
    ),
]  # fmt: skip
ModelArg = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="An argument of the timm model, as in embed_dim=48; repeat it.",
        rich_help_panel=ELSEWHERE,
    ),
]
Dataset = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="What it is judged on.", rich_help_panel=ELSEWHERE),
]
ImageSize = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Pixels a side, if not the data's.", rich_help_panel=ELSEWHERE
    ),
]
ResamplePositions = Annotated[
    bool,
    typer.Option(
        "--resample-positions",
        help="Fit position embeddings of another size.",
        rich_help_panel=ELSEWHERE,
    ),
]
Method = Annotated[
    str | None,
    typer.Option(
        metavar="METHOD", help="What regularises it, when switched on.", rich_help_panel=ELSEWHERE
    ),
]

Precision = Literal["fp64", "fp32", "bf16", "fp16"]
Resume = Literal["auto", "must", "never"]
