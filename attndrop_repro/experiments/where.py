"""Where work happens: it decides no number, so it is given on the command line, not in recipes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Where:
    """Store, data, device.

    Attributes:
        results: Folder of the results store.
        data_dir: Folder of the data set's files.
        device: As in "auto", "cpu", "cuda".
        download: Whether data sets may be fetched.
    """

    results: Path
    data_dir: Path | None = None
    device: str = "auto"
    download: bool = False
