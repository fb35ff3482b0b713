"""Getting a data set, only when asked to, and only if its checksum is right."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from urllib.error import URLError

from attndrop_repro.config.errors import AttndropError


def fetch(url: str, folder: Path, name: str, md5: str) -> Path:
    """Downloads a file; one that is there with the right checksum is left alone.

    It comes under another name and gets its own when its checksum is right, so that an interrupted
    download never looks like a file.

    Args:
        url: Where it is published.
        folder: Where it goes.
        name: Its name there.
        md5: The publisher's checksum.

    Raises:
        AttndropError: It cannot be had, or is not what was published.
    """
    from torchvision.datasets.utils import check_md5, download_url

    path = folder / name
    if path.is_file() and check_md5(path, md5):
        return path
    part = folder / f".part-{os.getpid()}-{name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.redirect_stderr(io.StringIO()):  # its progress bar; ours is the caller's
            download_url(url, str(folder), part.name, None)
        if not check_md5(part, md5):
            raise AttndropError(
                f"{url} did not give the published file (its md5 is not {md5}): try again later"
            )
        part.replace(path)
    except (URLError, OSError, RuntimeError) as error:
        raise AttndropError(f"cannot download {url}: {' '.join(str(error).split())}") from None
    finally:
        part.unlink(missing_ok=True)
    return path
