"""The health of a store: flipped bytes, lost files, foreign files, contradictions.

Not provable is what is written again and again (``status.json``, ``history.jsonl``): that it can be
read is all that is checked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import pyarrow.compute as pc

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.store import checkpoint
from attndrop_repro.store.atomic import TEMPORARY, read_json, writer_lives
from attndrop_repro.store.logits import load_logits
from attndrop_repro.store.measurements import Part, parse_name, read_part
from attndrop_repro.store.run_dir import SEALED, RunDir
from attndrop_repro.store.schema import OUTSIDE

if TYPE_CHECKING:
    from attndrop_repro.store.store import Store

Kind = Literal["damaged", "missing", "foreign", "leftover", "contradiction"]
_TOP = frozenset({"measurements", "receipts", "runs", "outside", "reports", "logs"})


class Finding(NamedTuple):
    """Something wrong.

    Attributes:
        kind: damaged: bytes changed; missing: a file was lost; foreign: not of the store, harmless;
            leftover: of a writer that was killed, harmless; contradiction: two files disagree.
        path: The file or folder, relative to the store.
        message: What is wrong and what to do.
    """

    kind: Kind
    path: str
    message: str

    @property
    def harmless(self) -> bool:
        """Whether no result is affected."""
        return self.kind in ("foreign", "leftover")


def verify(store: Store) -> list[Finding]:
    """Reads every file of a store; an empty list means that all is well.

    Raises:
        AttndropError: There is no store.
    """
    if not store.root.is_dir():
        raise AttndropError(f"{store.root} is not there: no results store to verify")
    findings = [
        Finding("foreign", path.name, "not part of a results store; move it elsewhere")
        for path in sorted(store.root.iterdir())
        if path.name not in _TOP
    ]
    parts: list[Part] = []
    findings += _measurements(store, parts)
    findings += _receipts(store, parts)
    hashes: dict[str, str] = {}
    for path in _listing(store.root / "runs"):
        if path.name.startswith(TEMPORARY):
            findings += _left(store, path)
        else:
            findings += _run(store, RunDir(path), hashes)
    findings += _rows(parts, hashes)
    return findings


def _listing(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _left(store: Store, path: Path) -> Iterator[Finding]:
    if not writer_lives(path):
        message = "left by a writer that was killed; nothing reads it, it may be deleted"
        yield Finding("leftover", _relative(store, path), message)


def _relative(store: Store, path: Path) -> str:
    return str(path.relative_to(store.root))


def _measurements(store: Store, parts: list[Part]) -> Iterator[Finding]:
    for path in _listing(store.measurements):
        where = _relative(store, path)
        if path.name.startswith(TEMPORARY):
            yield from _left(store, path)
        elif parse_name(path.name) is None:
            yield Finding("foreign", where, "not a measurement file; nothing reads it")
        else:
            try:
                parts.append(read_part(path))
            except FileNotFoundError:
                continue  # compacted away meanwhile
            except (AttndropError, OSError) as error:
                yield Finding("damaged", where, str(error))


def _receipts(store: Store, parts: list[Part]) -> Iterator[Finding]:
    accounted = {batch for part in parts for batch in (*part.batches, *part.removed)}
    for path in _listing(store.receipts):
        name = parse_name(path.name)
        if name is None:
            if not path.name.startswith(TEMPORARY):
                where = _relative(store, path)
                yield Finding("foreign", where, "not a receipt; nothing reads it")
        elif name.digest not in accounted and not (store.measurements / path.name).exists():
            yield Finding(
                "missing",
                f"measurements/{path.name}",
                "was written and is gone; restore it from a copy, or measure with --force and "
                f"delete {_relative(store, path)}",
            )


def _run(store: Store, run: RunDir, hashes: dict[str, str]) -> Iterator[Finding]:
    where = _relative(store, run.path)
    if not run.path.is_dir():
        yield Finding("foreign", where, "not a run's folder; nothing reads it")
        return
    yield from _sealed(store, run)
    try:
        spec = run.spec()
    except AttndropError as error:
        yield Finding("damaged", f"{where}/spec.json", str(error))
    else:
        hashes[run.run_id] = spec.config_hash
        if spec.run_id != run.run_id:
            message = f"its spec.json is that of {spec.run_id}"
            yield Finding("contradiction", where, message)
    for name, read in (("status.json", run.status), ("history.jsonl", run.history)):
        try:
            read()
        except AttndropError as error:
            yield Finding("damaged", f"{where}/{name}", str(error))
    kept = [*_listing(run.checkpoints), *_listing(run.path / "snapshots")]
    for path in [*kept, *filter(Path.exists, [run.path / "weights"])]:
        if path.name.startswith(TEMPORARY):
            yield from _left(store, path)
            continue
        try:
            checkpoint.check(path)
        except AttndropError as error:
            if path.exists():  # else it was pruned meanwhile
                yield Finding("damaged", _relative(store, path), str(error))
    for path in _listing(run.path / "logits"):
        if path.name.startswith(TEMPORARY):
            yield from _left(store, path)
            continue
        try:
            load_logits(path)
        except AttndropError as error:
            yield Finding("damaged", _relative(store, path), str(error))


def _sealed(store: Store, run: RunDir) -> Iterator[Finding]:
    """The files written once, against their checksums."""
    try:
        hashes = read_json(run.path / "seal.json").get("sha256", {})
    except FileNotFoundError:
        hashes = {}
    except AttndropError as error:
        yield Finding("damaged", _relative(store, run.path / "seal.json"), str(error))
        return
    for name in SEALED:
        path = run.path / name
        where = _relative(store, path)
        if not path.is_file():
            yield Finding("missing", where, "every run has one; restore it from a copy")
        elif name in hashes and hashlib.sha256(path.read_bytes()).hexdigest() != hashes[name]:
            yield Finding("damaged", where, "its bytes are not those that were written")


def _rows(parts: list[Part], hashes: dict[str, str]) -> Iterator[Finding]:
    """Rows must be of a run that is there, and of the configuration that it says."""
    told = set()
    for part in parts:
        pairs = part.table.select(["run_id", "config_hash"]).group_by(["run_id", "config_hash"])
        for row in pairs.aggregate([]).to_pylist():
            run_id, config_hash = row["run_id"], row["config_hash"]
            if run_id in told or run_id is None or run_id.startswith(OUTSIDE):
                continue
            if run_id not in hashes and not _removed(part, run_id, parts):
                told.add(run_id)
                yield Finding("missing", f"runs/{run_id}", "has rows, but no readable folder")
            elif run_id in hashes and config_hash != hashes[run_id]:
                told.add(run_id)
                message = f"its config_hash is {hashes[run_id]}, that of its rows {config_hash}"
                yield Finding("contradiction", f"measurements/{part.name.file}", message)


def _removed(part: Part, run_id: str, parts: list[Part]) -> bool:
    """Whether all rows of a run in this file are noted as removed."""
    gone = {batch for other in parts for batch in other.removed}
    if not part.name.compacted:
        return part.name.digest in gone
    mine = part.table.filter(pc.equal(part.table["run_id"], run_id))
    return all(part.batches[index] in gone for index in pc.unique(mine["_batch"]).to_pylist())
