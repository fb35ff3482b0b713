"""Whether a report that is there is the one that its store gives now."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np

from attndrop_repro.config.suite import Suite
from attndrop_repro.report.build import MANIFEST, PAGE, listed, render
from attndrop_repro.report.source import read

# Another version of matplotlib or FreeType moves edges by parts of a pixel: a picture is the same
# when hardly any pixel differs visibly.
VISIBLE = 0.25
SHARE = 0.01

_FIGURE = re.compile(rb"<!--figure-->.*?<!--/figure-->", re.DOTALL)


def check_report(store_root: str | Path, suite: Suite, out: str | Path) -> list[str]:
    """What a rebuilt report would change.

    Tables, data and text are compared by bytes, PNG pictures by tolerance; SVG files and the
    figures inside the page are drawn from what the PNG shows, and need only be there.

    Args:
        store_root: Folder of the results store.
        suite: The suite.
        out: Folder of the report.

    Returns:
        One line a difference, sorted by file; empty when the report is up to date.
    """
    folder = Path(out)
    fresh = render(suite, read(Path(store_root), suite))
    found = []
    for name in sorted(set(fresh) - {MANIFEST}):
        try:
            there = (folder / name).read_bytes()
        except OSError:
            found.append(f"{name}: missing")
            continue
        if not _same(name, there, fresh[name]):
            found.append(f"{name}: differs")
    return found + [
        f"{name}: no longer part of the report"
        for name in sorted(listed(folder) - set(fresh))
        if (folder / name).is_file()
    ]


def _same(name: str, there: bytes, fresh: bytes) -> bool:
    if there == fresh:
        return True
    if name.endswith(".png"):
        return same_picture(there, fresh)
    if name == PAGE:
        return _FIGURE.sub(b"", there) == _FIGURE.sub(b"", fresh)
    return name.endswith(".svg") and there.lstrip().startswith(b"<?xml")


def same_picture(one: bytes, other: bytes) -> bool:
    """Whether two PNG files show the same, up to how edges are smoothed."""
    from PIL import Image

    try:
        pixels = [
            np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), dtype=np.float64) / 255
            for data in (one, other)
        ]
    except OSError:
        return False
    first, second = pixels
    if max(abs(a - b) for a, b in zip(first.shape, second.shape, strict=True)) > 4:
        return False
    rows, columns = np.minimum(first.shape[:2], second.shape[:2])
    apart = np.abs(first[:rows, :columns] - second[:rows, :columns]).max(axis=2)
    return bool((apart > VISIBLE).mean() <= SHARE)
