"""Where recipes and suites are: in a checkout, in an installed wheel, or where the user says."""

from __future__ import annotations

from pathlib import Path

from attndrop_repro.config.errors import UsageError, nearest, unknown

_PACKAGE = Path(__file__).resolve().parents[1]
_SUFFIXES = (".yaml", ".yml")


def recipes_folder() -> Path:
    """The folder of the recipes that come with this installation."""
    shipped = _PACKAGE / "_shipped" / "recipes"  # only a wheel has it
    return shipped if shipped.is_dir() else _PACKAGE.parent / "recipes"


def recipe_names() -> list[str]:
    """Names of the recipes that come with this installation, in alphabetical order."""
    return _names(recipes_folder())


def suite_names() -> list[str]:
    """Names of the suites that come with this installation, in alphabetical order."""
    return _names(recipes_folder() / "suites")


def recipe_file(name_or_file: str | Path) -> Path:
    """The file of a recipe given by name, or by a path of one's own.

    Raises:
        UsageError: There is no such recipe or file; the message has the nearest names.
    """
    return _file(name_or_file, "recipe", recipes_folder())


def suite_file(name_or_file: str | Path) -> Path:
    """The file of a suite given by name, or by a path of one's own.

    Raises:
        UsageError: There is no such suite or file; the message has the nearest names.
    """
    return _file(name_or_file, "suite", recipes_folder() / "suites")


def header(file: Path) -> str:
    """The comment at the top of a recipe or suite: what it is, its command, what it costs.

    Args:
        file: As from `recipe_file`.

    Returns:
        Its lines without the comment signs.
    """
    lines = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line[1:].removeprefix(" "))
    return "\n".join(lines).strip("\n")


def _names(folder: Path) -> list[str]:
    return sorted(file.stem for file in folder.glob("*.yaml"))


def _file(name_or_file: str | Path, what: str, folder: Path) -> Path:
    text = str(name_or_file)
    names = _names(folder)
    if text in names:
        return folder / f"{text}.yaml"
    if "\0" in text or not text.strip():
        raise UsageError(f"{text!r} names no {what}{nearest(text, names)}")
    path = Path(text).expanduser()
    looks_like_file = "/" in text or len(path.parts) > 1 or path.suffix in _SUFFIXES
    try:
        if path.is_dir() and looks_like_file:
            raise UsageError(f"{path} is a folder; name a {what} file in it")
        if path.is_file() and (looks_like_file or path.suffix):
            return path
    except (OSError, ValueError):  # a name too long for the file system, or without access
        pass
    if looks_like_file:
        raise UsageError(f"{what} file {text!r} does not exist{nearest(path.stem, names)}")
    raise unknown(what, text, names)
