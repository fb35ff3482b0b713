"""Downloads, from a real server on the loopback interface."""

import functools
import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.data.download import fetch

CONTENT = b"published bytes" * 100
MD5 = hashlib.md5(CONTENT).hexdigest()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "file.gz").write_bytes(CONTENT)
    handler = functools.partial(Quiet, directory=str(tmp_path / "www"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def test_fetches_checks_and_leaves_alone(server: str, tmp_path: Path) -> None:
    path = fetch(f"{server}/file.gz", tmp_path / "data", "file.gz", MD5)
    assert path.read_bytes() == CONTENT
    # there already: no server is asked
    assert fetch("http://127.0.0.1:9/file.gz", tmp_path / "data", "file.gz", MD5) == path
    # half of an interrupted download is there: it is replaced
    path.write_bytes(CONTENT[:50])
    assert fetch(f"{server}/file.gz", tmp_path / "data", "file.gz", MD5).read_bytes() == CONTENT


def test_wrong_checksum_leaves_nothing(server: str, tmp_path: Path) -> None:
    with pytest.raises(AttndropError, match="md5"):
        fetch(f"{server}/file.gz", tmp_path / "data", "file.gz", "0" * 32)
    assert list((tmp_path / "data").iterdir()) == []


def test_absent_and_unreachable(server: str, tmp_path: Path) -> None:
    for url in (f"{server}/other.gz", "http://127.0.0.1:9/file.gz"):
        with pytest.raises(AttndropError, match="cannot download") as caught:
            fetch(url, tmp_path / "data", "file.gz", MD5)
        assert "\n" not in str(caught.value)
