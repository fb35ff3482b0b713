"""Builds a report: reads the store, computes, draws, and puts the files in place."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.config.suite import Suite
from attndrop_repro.report import latex
from attndrop_repro.report.chapter import chapter
from attndrop_repro.report.delimited import csv_text
from attndrop_repro.report.document import document
from attndrop_repro.report.measurements import measurements
from attndrop_repro.report.page import page
from attndrop_repro.report.select import select
from attndrop_repro.report.source import Source, read

MANIFEST = "manifest.json"
PAGE = "report.html"
DOCUMENT = "report.md"
MEASUREMENTS = "measurements.csv"
_BESIDE = ".report-"
_STALE_SECONDS = 3600


@dataclass(frozen=True)
class ReportPaths:
    """Where a report is.

    Attributes:
        folder: Its folder.
        html: The page.
        markdown: The same as Markdown.
        measurements: The numbers behind it.
        files: All files, sorted; the manifest, which names all others, included.
    """

    folder: Path
    html: Path
    markdown: Path
    measurements: Path
    files: tuple[Path, ...]


def build_report(store_root: str | Path, suite: Suite, out: str | Path) -> ReportPaths:
    """Builds the report of a suite from a results store.

    The same store and suite give the same bytes. A build that is killed leaves the files of the
    last one: the new ones are written beside them and renamed at the end.

    Args:
        store_root: Folder of the results store; it is only read, and need not exist.
        suite: What is compared.
        out: Folder of the report; files in it that are no part of a report are left alone.

    Raises:
        AttndropError: A file cannot be written.
    """
    folder = Path(out)
    contents = render(suite, read(Path(store_root), suite))
    try:
        _put(folder, contents)
    except OSError as error:
        raise AttndropError(
            f"cannot write the report to {folder}: {error.strerror or error}"
        ) from error
    return ReportPaths(
        folder,
        folder / PAGE,
        folder / DOCUMENT,
        folder / MEASUREMENTS,
        tuple(folder / name for name in sorted(contents)),
    )


def render(suite: Suite, source: Source) -> dict[str, bytes]:
    """Every file of a report by its path inside the report's folder.

    Args:
        suite: What is compared.
        source: What the store has.
    """
    groups = select(suite, source)
    several = len(groups) > 1
    chapters = [chapter(one, f"{one.recipe}/" if several else "") for one in groups]
    files: dict[str, str | bytes] = {
        PAGE: page(suite, chapters),
        DOCUMENT: document(suite, chapters),
        MEASUREMENTS: measurements(groups),
    }
    for one in chapters:
        for table in one.tables():
            label = f"tab:{suite.name}-{one.folder.rstrip('/')}-{table.name}".replace("--", "-")
            files[f"{one.folder}tables/{table.name}.csv"] = csv_text(table)
            files[f"{one.folder}tables/{table.name}.tex"] = latex.table(table, label)
        for picture in one.pictures():
            files[f"{one.folder}figures/{picture.name}.svg"] = picture.svg
            files[f"{one.folder}figures/{picture.name}.png"] = picture.png
            files[f"{one.folder}figures/{picture.name}.csv"] = csv_text(picture.data)
    contents = {
        name: text if isinstance(text, bytes) else text.encode() for name, text in files.items()
    }
    return contents | {MANIFEST: _manifest(contents)}


def _manifest(contents: Mapping[str, bytes]) -> bytes:
    digests = {name: hashlib.sha256(contents[name]).hexdigest() for name in sorted(contents)}
    return (json.dumps({"files": digests}, indent=2) + "\n").encode()


def _put(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Writes all files beside the old ones, renames them, and removes what is no longer made.

    The page and the manifest are renamed last: until then the old page stands, and should the
    build end between two renames, the next one puts everything right.
    """
    folder.mkdir(parents=True, exist_ok=True)
    before = listed(folder)
    _sweep(folder)
    beside = Path(tempfile.mkdtemp(prefix=_BESIDE, dir=folder))
    try:
        for name, content in contents.items():
            path = beside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for name in sorted(contents, key=lambda name: (name in (PAGE, MANIFEST), name)):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (beside / name).replace(target)
        for name in before - set(contents):
            (folder / name).unlink(missing_ok=True)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _sweep(folder: Path) -> None:
    """Removes what killed builds have left; a build that may still be at work is left alone."""
    for path in folder.glob(f"{_BESIDE}*"):
        with suppress(OSError):  # another build may have removed it
            if time.time() - path.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


def listed(folder: Path) -> set[str]:
    """Files of the report that is there, by its manifest; never a path that leads elsewhere."""
    try:
        names = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return set()
    home = folder.resolve()
    return {
        name
        for name in names
        if isinstance(name, str) and (folder / name).resolve().is_relative_to(home)
    }
