"""A run's folder: its specification, provenance, state, history, and where its large files go."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.config.load import dump_recipe
from attndrop_repro.config.spec import RunSpec
from attndrop_repro.store.atomic import disk_errors, read_json, sync, write_bytes, write_json
from attndrop_repro.store.measurements import now, timestamp

Status = Literal["running", "finished", "failed", "interrupted"]

SEALED = ("spec.json", "recipe.yaml", "provenance.json")
_HEARTBEAT_SECONDS = 2.0
_SILENCE_SECONDS = 600.0  # without a heartbeat from another machine, a run counts as dead


class RunDir:
    """The folder of one run.

    Attributes:
        path: ``<store>/runs/<run id>``.
        run_id: The run's name.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run_id = path.name
        self._last_beat = 0.0

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints; see `checkpoint`."""
        return self.path / "checkpoints"

    def snapshot(self, epoch: int) -> Path:
        """Folder of the weights kept after `epoch` epochs; 0 are the initial ones."""
        return self.path / "snapshots" / f"epoch-{epoch:04d}"

    def snapshots(self) -> list[int]:
        """Epochs whose weights are kept, ascending."""
        folders = (self.path / "snapshots").glob("epoch-[0-9]*")
        return sorted(int(folder.name.removeprefix("epoch-")) for folder in folders)

    def logits(self, split: str) -> Path:
        """File of the per-example logits of a split; see `logits`."""
        return self.path / "logits" / f"{split}.safetensors"

    def exists(self) -> bool:
        """Whether the run has begun."""
        return (self.path / "spec.json").is_file()

    def spec(self) -> RunSpec:
        """The run's specification.

        Raises:
            AttndropError: There is none, or it is damaged.
        """
        try:
            return RunSpec.from_json((self.path / "spec.json").read_text(encoding="utf-8"))
        except OSError:
            raise AttndropError(f"{self.path} has no spec.json: no run has begun there") from None
        except (AttndropError, UnicodeDecodeError) as error:
            raise AttndropError(f"{self.path / 'spec.json'}: {error}") from None

    def provenance(self) -> dict[str, Any]:
        """Code and dependency versions, data checksum, device, threads; {} if there is none.

        What differed when the run went on elsewhere is under ``resumed``.
        """
        try:
            return read_json(self.path / "provenance.json")
        except FileNotFoundError:
            return {}

    def begin(self, spec: RunSpec, provenance: Mapping[str, Any]) -> None:
        """Starts or resumes the run: what it is and where, and status "running".

        Raises:
            AttndropError: The folder holds another run of the same name.
        """
        if self.exists():
            there = self.spec()
            if (there.config_hash, there.run_id) != (spec.config_hash, spec.run_id):
                raise AttndropError(
                    f"{self.path} holds another run: its config_hash is {there.config_hash}, this "
                    f"one's {spec.config_hash}; use another --results folder or rename the recipe"
                )
        known = self.provenance()
        if known:
            earlier = [known, *known.get("resumed", [])]
            bare = [{k: v for k, v in one.items() if k != "resumed"} for one in earlier]
            if dict(provenance) not in bare:
                known["resumed"] = [*known.get("resumed", []), dict(provenance)]
        else:
            known = dict(provenance)
        files = {
            "spec.json": spec.to_json().encode(),
            "recipe.yaml": dump_recipe(spec.resolved_recipe).encode(),
            "provenance.json": (json.dumps(known, indent=2, ensure_ascii=False) + "\n").encode(),
        }
        # spec.json last: a folder with one is complete.
        for name in reversed(SEALED):
            write_bytes(self.path / name, files[name])
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        write_json(self.path / "seal.json", {"sha256": hashes})
        self.set_status("running")

    def status(self) -> dict[str, Any]:
        """The state last written, with at least ``status``; {} before the run has begun."""
        try:
            return read_json(self.path / "status.json")
        except FileNotFoundError:
            return {}

    def set_status(self, status: Status, **fields: Any) -> None:
        """Writes the state; fields not given keep their values.

        Args:
            status: Running, finished, failed, or interrupted.
            fields: JSON values: epoch, epochs, step, steps, best, message, ...
        """
        self._write_status({**fields, "status": status}, durable=True)

    def heartbeat(self, *, force: bool = False, **fields: Any) -> None:
        """Tells that the run is alive, and how far; cheap enough for every step.

        Args:
            force: Write now, even if the last one was less than two seconds ago.
            fields: As for `set_status`.
        """
        if force or time.monotonic() - self._last_beat >= _HEARTBEAT_SECONDS:
            self._write_status({**fields, "status": "running"}, durable=False)

    def _write_status(self, fields: dict[str, Any], *, durable: bool) -> None:
        content = {**self.status(), **fields}
        if fields["status"] == "running":
            content.pop("message", None)
            content.update(fields)
        content.update(_who(), updated_at=timestamp(now()))
        write_json(self.path / "status.json", content, durable=durable)
        self._last_beat = time.monotonic()

    def state(self) -> str:
        """The status, or "dead" where a run says it is running but its process is gone."""
        status = self.status()
        word = str(status.get("status", "new"))
        return "dead" if word == "running" and not _alive(status) else word

    def append_history(self, row: Mapping[str, Any]) -> None:
        """Adds a row to ``history.jsonl``; what a killed writer left of a row is dropped first.

        A power cut may lose it until `sync_history`: a run that goes on drops the rows after its
        checkpoint anyway.
        """
        path = self.path / "history.jsonl"
        line = json.dumps(dict(row), ensure_ascii=False).encode() + b"\n"
        with disk_errors(path):
            self.path.mkdir(parents=True, exist_ok=True)
            with path.open("ab+") as file:
                file.seek(0)
                content = file.read()
                file.truncate(content.rfind(b"\n") + 1)
                try:
                    file.write(line)
                    file.flush()
                except OSError:
                    file.truncate(content.rfind(b"\n") + 1)
                    raise

    def sync_history(self) -> None:
        """Waits until all rows have reached the disk: before a checkpoint that counts on them."""
        path = self.path / "history.jsonl"
        with disk_errors(path):
            if path.exists():
                sync(path)

    def history(self) -> list[dict[str, Any]]:
        """The rows so far; a last row that was not written whole does not count."""
        try:
            content = (self.path / "history.jsonl").read_bytes()
        except FileNotFoundError:
            return []
        lines = content[: content.rfind(b"\n") + 1].splitlines()
        try:
            return [json.loads(line) for line in lines]
        except ValueError as error:
            raise AttndropError(f"{self.path / 'history.jsonl'} is damaged: {error}") from None

    def keep_history(self, keep: Callable[[dict[str, Any]], bool]) -> None:
        """Drops rows, as those after the checkpoint that a resumed run goes on from."""
        rows = self.history()
        kept = [row for row in rows if keep(row)]
        if len(kept) < len(rows):
            lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in kept]
            write_bytes(self.path / "history.jsonl", "".join(lines).encode())


def _who() -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": os.getpid(), "born": _birth(os.getpid())}


def _birth(pid: int) -> str:
    """When a process started, so that a number used again is not taken for it; "" if unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _alive(status: Mapping[str, Any]) -> bool:
    if status.get("host") != socket.gethostname():
        try:
            return age_seconds(status) < _SILENCE_SECONDS
        except (KeyError, ValueError):
            return False
    pid = status.get("pid")
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it is somebody else's, so it lives
    return _birth(pid) == str(status.get("born", ""))


def age_seconds(status: Mapping[str, Any]) -> float:
    """Seconds since the state was written."""
    return (now() - datetime.fromisoformat(str(status["updated_at"]))).total_seconds()
