"""Several writers, readers and compactions at a time (bug report P15)."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

from attndrop_repro.store import measurements
from attndrop_repro.store.compact import compact
from attndrop_repro.store.store import Store
from attndrop_repro.store.verify import verify

# One process imports and then becomes many, which start writing together.
WRITERS = """
import os, sys
from attndrop_repro.store.store import Store
os.fsync = lambda handle: None  # what is tested is order among processes, not power cuts
root, workers, rows, size = sys.argv[1], *map(int, sys.argv[2:])
children = []
for worker in range(workers):
    child = os.fork()
    if child:
        children.append(child)
        continue
    for n in range(rows):
        detail = {"worker": worker, "text": "x" * (size * (n % 2))}
        Store(root).write_outside(
            {"run_id": f"outside--{worker}", "model": "m"},
            [{"metric": "accuracy", "value": worker + n / 1000, "n": n, "detail": detail}],
        )
    os._exit(0)
sys.exit(any(os.waitpid(child, 0)[1] for child in children))
"""


def start(root: Path, workers: int, rows: int, size: int) -> subprocess.Popen[bytes]:
    words = [str(root), str(workers), str(rows), str(size)]
    return subprocess.Popen([sys.executable, "-c", WRITERS, *words])


def test_eight_writers_on_a_store_that_is_not_there(tmp_path):
    root = tmp_path / "new" / "store"
    assert start(root, workers=8, rows=25, size=9000).wait(timeout=120) == 0
    frame = Store(root).frame()
    assert len(frame) == 200
    assert len(Store(root).frame(dedupe=False)) == 200
    assert Counter(zip(frame["run_id"], frame["n"], strict=True)).most_common(1)[0][1] == 1
    assert (frame["detail"].str.len() > 9000).sum() == 8 * 12
    assert verify(Store(root)) == []


def test_reading_and_compacting_while_others_write(tmp_path):
    root = tmp_path / "store"
    store, seen = Store(root), 0
    process = start(root, workers=2, rows=40, size=0)
    while process.poll() is None:
        compact(store)
        rows = len(store.table(dedupe=False))
        assert rows >= seen  # nothing that was there is ever away
        seen = rows
    assert process.returncode == 0
    compact(store)
    assert len(store.table(dedupe=False)) == 80
    assert len(list(store.measurements.iterdir())) == 1
    assert verify(store) == []


def test_a_reader_in_the_middle_of_a_compaction_loses_nothing(make, monkeypatch):
    # The worst moment: we have listed the folder, then all that we listed is replaced.
    store, run_id = make()
    for n in range(4):
        store.write(run_id, [{"metric": "accuracy", "value": 0.5, "n": n}])
    real, calls = measurements.names, []

    def names(folder):
        found = real(folder)
        calls.append(len(found))
        if len(calls) == 1:
            monkeypatch.setattr(measurements, "names", real)
            compact(Store(store.root))
            monkeypatch.setattr(measurements, "names", names)
        return found

    monkeypatch.setattr(measurements, "names", names)
    assert len(Store(store.root).table(dedupe=False)) == 4
    assert len(calls) > 2


def test_a_listing_that_shows_neither_old_nor_new_is_repeated(make, monkeypatch):
    # A listing of a folder that changes meanwhile may lack both the new file and the old ones.
    store, run_id = make()
    for n in range(4):
        store.write(run_id, [{"metric": "accuracy", "value": 0.5, "n": n}])
    compact(store)
    real, calls = measurements.names, []

    def names(folder):
        calls.append(1)
        return [] if len(calls) == 1 else real(folder)

    monkeypatch.setattr(measurements, "names", names)
    assert len(Store(store.root).table(dedupe=False)) == 4


def test_a_stale_temporary_file_blocks_nobody(make):
    store, run_id = make()
    store.measurements.mkdir(parents=True)
    (store.measurements / ".tmp-999999999-ab-x.parquet").write_bytes(b"half")
    (store.measurements / "lock").write_bytes(b"")
    store.write(run_id, [{"metric": "accuracy", "value": 0.5}])
    assert len(store.frame()) == 1
