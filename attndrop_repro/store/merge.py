"""Stores from other machines into one: files are immutable, so merging is copying."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.store import measurements as files
from attndrop_repro.store.atomic import (
    TEMPORARY,
    disk_errors,
    move_folder,
    remove_folder,
    temporary_name,
    write_bytes,
)
from attndrop_repro.store.run_dir import RunDir

if TYPE_CHECKING:
    from attndrop_repro.store.store import Store

_DONE = {"finished": 3, "running": 2, "dead": 1, "interrupted": 1}


@dataclass
class Merged:
    """What a merge did.

    Attributes:
        files: Measurement files added.
        runs: Runs added.
        replaced: Runs that were further on in a source and came from there.
        notes: What was left out, and why.
    """

    files: int = 0
    runs: int = 0
    replaced: int = 0
    notes: list[str] = field(default_factory=list)


def merge(store: Store, sources: Sequence[Store]) -> Merged:
    """Adds the runs and rows of other stores; again does nothing more.

    A run that is in both comes from where it got further; logits and snapshots are taken over
    where they lack.

    Args:
        store: Where to; it may not exist yet.
        sources: Where from; they stay as they are.

    Raises:
        UsageError: A source is no store, or is the store itself.
        AttndropError: Runs of one name are different runs, or a file is damaged: all are named, and
            nothing has changed.
    """
    for source in sources:
        _check_is_store(source, store)
    problems = []
    for source in sources:
        try:
            files.Reader(source.measurements).contents()
        except AttndropError as error:
            problems.append(str(error))
    problems += _contradictions([store, *sources])
    if problems:
        raise AttndropError("\n".join(problems))
    done = Merged()
    for source in sources:
        # Runs first, so that no row ever lacks its run.
        for run in _runs(source):
            _take_run(store, run, done)
        while not _took_files(store, source, done):
            pass
    return done


def _check_is_store(source: Store, store: Store) -> None:
    if not source.root.is_dir():
        raise UsageError(f"{source.root} is not there; name the folder of a results store")
    if not source.exists():
        raise UsageError(f"{source.root} is no results store: it has neither measurements nor runs")
    if store.root.exists() and source.root.samefile(store.root):
        raise UsageError(f"{source.root} cannot be merged into itself")


def _runs(store: Store) -> list[RunDir]:
    folder = store.root / "runs"
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return [RunDir(path) for path in paths if path.is_dir() and not path.name.startswith(TEMPORARY)]


def _contradictions(stores: Sequence[Store]) -> list[str]:
    known: dict[str, tuple[str, Path]] = {}
    problems = []
    for store in stores:
        for run in _runs(store):
            try:
                spec = run.spec()
            except AttndropError as error:
                problems.append(str(error))
                continue
            first = known.setdefault(run.run_id, (spec.config_hash, run.path))
            if spec.run_id != run.run_id:
                problems.append(f"{run.path} holds the specification of {spec.run_id}")
            elif first[0] != spec.config_hash:
                problems.append(
                    f"{run.run_id} is not the same run in {first[1]} (config_hash {first[0]}) and "
                    f"in {run.path} ({spec.config_hash}): remove or rename one of them"
                )
    return problems


def _take_run(store: Store, run: RunDir, done: Merged) -> None:
    mine = store.run_dir(run.run_id)
    if not mine.path.exists():
        _copy(run.path, mine.path)
        done.runs += 1
        return
    if _progress(run) > _progress(mine):
        if mine.state() == "running":
            done.notes.append(f"{run.run_id} is running here: left as it is")
            return
        _copy(run.path, mine.path)
        done.replaced += 1
        return
    for kind in ("logits", "snapshots"):
        for path in sorted((run.path / kind).glob("[!.]*")):
            target = mine.path / kind / path.name
            if not target.exists():
                _copy(path, target)


def _progress(run: RunDir) -> tuple[int, float]:
    status = run.status()
    epoch = status.get("epoch")
    state = run.state()
    return _DONE.get(state, 0), float(epoch) if isinstance(epoch, int | float) else -1.0


def _copy(source: Path, target: Path) -> None:
    temporary = temporary_name(target)
    with disk_errors(target):
        try:
            temporary.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                ignore = shutil.ignore_patterns(f"{TEMPORARY}*", "lock")
                shutil.copytree(source, temporary, symlinks=True, ignore=ignore)
                move_folder(temporary, target)
            else:
                write_bytes(target, source.read_bytes())
        except (OSError, shutil.Error) as error:
            remove_folder(temporary)
            raise OSError(getattr(error, "errno", None) or 0, str(error)) from None


def _took_files(store: Store, source: Store, done: Merged) -> bool:
    """Copies what is missing here; False if the source was compacted meanwhile."""
    parts = files.Reader(source.measurements).contents().parts
    mine = files.Reader(store.measurements).contents().parts
    held = {batch for part in mine for batch in part.batches}
    gone = {batch for part in mine for batch in part.removed}
    for part in sorted(parts, key=lambda part: part.name.compacted, reverse=True):
        adds = set(part.batches) - held - gone or set(part.removed) - gone
        if not adds:
            continue
        try:
            content = (source.measurements / part.name.file).read_bytes()
        except FileNotFoundError:
            return False
        write_bytes(store.measurements / part.name.file, content)
        store.receive(part.name.file)
        held.update(part.batches)
        gone.update(part.removed)
        done.files += 1
    return True
