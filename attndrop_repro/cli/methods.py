"""`attndrop methods`: what there is to compare, with settings and references."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from attndrop_repro.cli.options import Json

group = typer.Typer(
    help="List the methods, or show one with its settings. They work on models of timm, "
    "torchvision, torch.nn and Hugging Face; a method that finds no place in a model says so.",
    epilog="Example: attndrop methods show attentiondrop-blur+consistency",
    invoke_without_command=True,
)


@group.callback()
def table(context: typer.Context, as_json: Json = False) -> None:
    """All methods: one line each."""
    if context.invoked_subcommand is not None:
        return
    from attndrop_repro.cli.output import Column, emit_json, emit_paragraph, emit_table
    from attndrop_repro.methods import registry
    from attndrop_repro.methods.base import SUPPORTED_MODELS

    found = [_described(registry.get(name)) for name in registry.names()]
    if as_json:
        emit_json(found)
        return
    rows = [
        (
            method["name"],
            method["passes"],
            ", ".join(
                f"{item['name']}={_short(item['default'])}"
                for item in method["settings"]
                if "symbol" in item and item["default"] not in ({}, [])
            ),
            method["models"],
            method["reference"],
        )
        for method in found
    ]
    emit_table(
        [Column("method"), Column("passes", right=True), Column("strength"),
         Column("models"), Column("reference", prose=True)],
        rows,
    )  # fmt: skip
    emit_paragraph("all models:", f"{SUPPORTED_MODELS}; and what attends as they do.")


@group.command(epilog="Example: attndrop methods show dropkey")
def show(
    name: Annotated[str, typer.Argument(metavar="METHOD", help="A method, or several as in a+b.")],
    as_json: Json = False,
) -> None:
    """One method or composition: every setting with its range, unit and source."""
    from attndrop_repro.cli.output import emit_fields, emit_json, emit_paragraph
    from attndrop_repro.methods import parse
    from attndrop_repro.methods.base import SUPPORTED_MODELS

    parts = [_described(part) for part in parse(name)]
    if as_json:
        emit_json(parts)
        return
    for index, part in enumerate(parts):
        if index:
            print()
        passes = f"{part['passes']} a training step"
        needs = ", ".join(part["needs"]) or "no particular place in a model"
        models = part["models"].replace("all", f"all of {SUPPORTED_MODELS}", 1)
        emit_fields(
            (key, value)
            for key, value in {**part, "passes": passes, "needs": needs, "models": models}.items()
            if key in ("name", "summary", "reference", "notes", "passes", "needs", "models")
            and value
        )
        for item in sorted(part["settings"], key=lambda item: "symbol" not in item):
            head = f"{item['name']} = {_short(item['default'])}"
            emit_paragraph(f"{head}   {item['range']}", _meaning(item))


def _described(cls: Any) -> dict[str, Any]:
    schema = cls.Settings.model_json_schema()
    definitions = schema.get("$defs", {})
    settings = [
        {"name": name, "default": field.get("default"), "range": _range(field, definitions)}
        | {
            key: field[key]
            for key in ("description", "symbol", "unit", "source", "open_point")
            if key in field
        }
        for name, field in schema.get("properties", {}).items()
    ]
    return {
        "name": cls.name,
        "summary": " ".join((cls.__doc__ or "").split("\n\n")[0].split()),
        "reference": cls.reference,
        "notes": cls.notes,
        "models": cls.models,
        "passes": cls.passes,
        "stochastic": cls.stochastic,
        "needs": sorted(cls.needs),
        "settings": settings,
    }


def _range(field: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Allowed values in one short text, from a field of a JSON schema."""
    if "$ref" in field:
        field = definitions[field["$ref"].rsplit("/", 1)[1]] | field
    if "enum" in field:
        return " | ".join(map(str, field["enum"]))
    if "const" in field:
        return str(field["const"])
    if "anyOf" in field:
        options = [_range(option, definitions) for option in field["anyOf"]]
        return " | ".join(dict.fromkeys(option for option in options if option))
    low = field.get("minimum", field.get("exclusiveMinimum"))
    high = field.get("maximum", field.get("exclusiveMaximum"))
    if low is None and high is None:
        return str(field.get("type", ""))
    left = "[" if "minimum" in field else "("
    right = "]" if "maximum" in field else ")"
    ends = ("-inf" if low is None else f"{low:g}", "inf" if high is None else f"{high:g}")
    return f"{left}{ends[0]}, {ends[1]}{right}"


def _meaning(item: dict[str, Any]) -> str:
    extra = [item[key] for key in ("unit", "source", "open_point") if item.get(key)]
    text = str(item.get("description", ""))
    return f"{text} ({'; '.join(map(str, extra))})" if extra else text


def _short(value: Any) -> str:
    """A value as recipes write it."""
    if isinstance(value, list):
        return f"[{', '.join(map(_short, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)
