"""A results store: a folder with measurements and runs. See `measurements` and `run_dir`."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from attndrop_repro.config.errors import AttndropError, UsageError, unknown
from attndrop_repro.config.spec import RunSpec, canonical_json
from attndrop_repro.store import measurements as files
from attndrop_repro.store.atomic import TEMPORARY, remove_folder, write_bytes
from attndrop_repro.store.run_dir import RunDir
from attndrop_repro.store.schema import COLUMNS, IDENTITY, Measurement, outside_id

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class RunInfo:
    """What `attndrop runs` shows of a run.

    Attributes:
        run_id: Its name.
        status: running, finished, failed, interrupted; dead: it says running, but is not; damaged.
        spec: Its specification; None if damaged.
        epoch: Epochs done.
        best: Best validation accuracy, a fraction.
        updated: When it last wrote its state, ISO 8601 in UTC.
        progress: Share done, 0 to 1.
        message: Why it failed, or what is damaged.
    """

    run_id: str
    status: str
    spec: RunSpec | None
    epoch: int | None
    best: float | None
    updated: str
    progress: float | None
    message: str


class Store:
    """A results store; opening one creates nothing.

    Args:
        root: Its folder; it may be on a shared file system, with any number of writers.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        if self.root.exists() and not self.root.is_dir():
            raise UsageError(f"{root} is no folder: a results store is one")
        self.measurements = self.root / "measurements"
        self.receipts = self.root / "receipts"
        self._reader = files.Reader(self.measurements)
        self._known: dict[str, dict[str, Any]] = {}

    def exists(self) -> bool:
        """Whether anything has been written to it."""
        return self.measurements.is_dir() or (self.root / "runs").is_dir()

    def run_dir(self, run_id: str) -> RunDir:
        """The folder of a run, whether or not it exists.

        Raises:
            UsageError: That is no run's name.
        """
        if run_id in ("", ".", "..") or any(sign in run_id for sign in "/\\\0"):
            raise UsageError(f"{run_id!r} is no run's name")
        return RunDir(self.root / "runs" / run_id)

    def begin_run(self, spec: RunSpec, provenance: Mapping[str, Any]) -> RunDir:
        """Starts or resumes a run: writes what it is, and status "running".

        Args:
            spec: The run.
            provenance: JSON values: ``code_version``, versions, data checksum, device, ...
        """
        run = self.run_dir(spec.run_id)
        run.begin(spec, provenance)
        self._known.pop(spec.run_id, None)
        return run

    def write(
        self,
        run_id: str,
        measurements: Sequence[Measurement],
        *,
        suite: str = "",
        device: str = "cpu",
        extra_columns: Mapping[str, Any] | None = None,
    ) -> Path:
        """Writes a batch of measurements of a run, as one new file.

        Args:
            run_id: A run that has begun.
            measurements: At least one.
            suite: The suite on whose behalf, if any.
            device: Where it was measured.
            extra_columns: Columns that differ from what the run's specification says.

        Returns:
            The file.

        Raises:
            AttndropError: The run has not begun, or the disk is full.
            TypeError: A column that there is not, or a value of a wrong type.
        """
        if run_id not in self._known:
            run = self.run_dir(run_id)
            provenance = run.provenance()
            version = (provenance.get("resumed") or [provenance])[-1].get("code_version")
            self._known[run_id] = {**run.spec().columns(), "code_version": version}
        shared = {
            **self._known[run_id],
            "suite": suite or None,
            "device": device,
            "status": self.run_dir(run_id).status().get("status"),
            **(extra_columns or {}),
        }
        return self._write(shared, measurements)

    def write_outside(
        self, columns: Mapping[str, Any], measurements: Sequence[Measurement]
    ) -> Path:
        """Writes measurements of a model that was not trained here.

        Args:
            columns: What is known of it, ``model`` at least. Without ``run_id``, its name is
                ``outside--<model>--<hash of these columns>``.
            measurements: At least one.
        """
        digest = hashlib.sha256(canonical_json(dict(columns)).encode()).hexdigest()[:8]
        shared = {"run_id": outside_id(columns["model"], digest), **columns}
        return self._write(shared, measurements)

    def _write(self, shared: Mapping[str, Any], measurements: Sequence[Measurement]) -> Path:
        if not measurements:
            raise ValueError("a batch needs at least one measurement")
        moment = files.now()
        rows = []
        for measurement in measurements:
            row = {**shared, **measurement, "created_at": files.timestamp(moment)}
            if not measurement.get("metric") or measurement.get("value") is None:
                raise TypeError(f"a measurement needs a metric and a value: {dict(measurement)!r}")
            if row.get("detail") is not None:
                row["detail"] = json.dumps(_jsonable(row["detail"]), ensure_ascii=False)
            rows.append(row)
        path = files.write(self.measurements, files.to_table(rows), moment)
        self.receive(path.name)
        return path

    def receive(self, name: str) -> None:
        """Leaves a receipt for a measurement file, by which `verify` notices when it is lost."""
        write_bytes(self.receipts / name, b"", durable=False)

    def table(self, *, dedupe: bool = True) -> pa.Table:
        """All rows as an Arrow table; see `frame`."""
        table = self._reader.table()
        return table.take(pa.array(_newest(table))) if dedupe else table

    def frame(self, dedupe: bool = True) -> pd.DataFrame:
        """All rows, in order of writing.

        Text is text (a method called ``none``, an id ``0012``), whole numbers are pandas' Int64,
        what a row does not have is missing: group with `groups`, which keeps such rows.

        Args:
            dedupe: Of rows that measure the same (`schema.IDENTITY`), only the newest.
        """
        import pandas as pd

        whole = {pa.int64(): pd.Int64Dtype()}
        frame: pd.DataFrame = self.table(dedupe=dedupe).to_pandas(types_mapper=whole.get)
        return frame

    def has(self, run_id: str, metric: str, **identity: Any) -> bool:
        """Whether a run has a measurement.

        Args:
            run_id: The run.
            metric: As in ``accuracy``.
            identity: Columns and values that it must have; None: has none.
        """
        strange = set(identity) - set(COLUMNS)
        if strange:
            raise TypeError(f"the store has no column {min(strange)!r}")
        import pyarrow.compute as pc

        table = self._reader.table()
        keep = pc.and_(pc.equal(table["run_id"], run_id), pc.equal(table["metric"], metric))
        for column, value in identity.items():
            same = pc.is_null(table[column]) if value is None else pc.equal(table[column], value)
            keep = pc.and_(keep, same)
        return bool(pc.any(keep).as_py())

    def runs(self) -> list[RunInfo]:
        """Every run, the one that wrote last at the end."""
        folder = self.root / "runs"
        found = [self._info(RunDir(path)) for path in _folders(folder)]
        return sorted(found, key=lambda info: (info.updated, info.run_id))

    def _info(self, run: RunDir) -> RunInfo:
        try:
            spec, status, state = run.spec(), run.status(), run.state()
        except AttndropError as error:
            return RunInfo(run.run_id, "damaged", None, None, None, "", None, str(error))
        epoch, step, steps = (status.get(name) for name in ("epoch", "step", "steps"))
        progress = None
        if state == "finished":
            progress = 1.0
        elif isinstance(step, int | float) and isinstance(steps, int | float) and steps > 0:
            progress = min(1.0, step / steps)
        elif isinstance(epoch, int | float):
            progress = min(1.0, epoch / spec.recipe.training.epochs)
        return RunInfo(
            run_id=run.run_id,
            status=state,
            spec=spec,
            epoch=epoch,
            best=status.get("best"),
            updated=str(status.get("updated_at", "")),
            progress=progress,
            message=str(status.get("message", "")),
        )

    def find_run(self, name: str) -> RunDir:
        """A run by its name, a prefix that only it has, or "last": the one that wrote last.

        Raises:
            UsageError: None, or more than one; the message has the nearest names.
        """
        known = [path.name for path in _folders(self.root / "runs")]
        if not known:
            raise UsageError(f"there is no run in {self.root}; start one with `attndrop train`")
        if name == "last":
            return self.run_dir(self.runs()[-1].run_id)
        if name in known:
            return self.run_dir(name)
        found = sorted(run_id for run_id in known if name and run_id.startswith(name))
        if len(found) == 1:
            return self.run_dir(found[0])
        if found:
            shown = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
            raise UsageError(f"{name!r} begins the names of {len(found)} runs: {shown}")
        raise unknown("run", name, known)

    def remove_run(self, run_id: str) -> None:
        """Removes a run: its rows for good, also if a merge brings their files back; its folder."""
        from attndrop_repro.store.compact import remove_rows

        remove_rows(self, run_id)
        remove_folder(self.run_dir(run_id).path)
        self._known.pop(run_id, None)


def groups(frame: pd.DataFrame, by: str | Sequence[str]) -> Any:
    """``frame.groupby`` that keeps rows which lack a value in `by`, as clean rows lack an eps."""
    return frame.groupby(by if isinstance(by, str) else list(by), dropna=False, sort=False)


def _folders(folder: Path) -> list[Path]:
    try:
        paths = [path for path in folder.iterdir() if path.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(path for path in paths if not path.name.startswith(TEMPORARY))


def _newest(table: pa.Table) -> Any:
    """Indices of the newest row of each identity, in order; the later file wins a tie."""
    keys = table.select([*IDENTITY, "created_at"]).to_pandas()
    keys = keys.sort_values("created_at", kind="stable", na_position="first")
    kept = keys.drop_duplicates(subset=list(IDENTITY), keep="last")
    return kept.index.sort_values().to_numpy()


def _jsonable(value: Any) -> Any:
    """JSON values; numbers that are not finite, which JSON does not have, become null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _jsonable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
