import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from attndrop_repro.report.build import render


def _load() -> Any:
    """The generator beside this file; tests are imported by path, so it is no package's module."""
    name = "attndrop_report_synthetic"
    if name not in sys.modules:
        path = Path(__file__).with_name("synthetic.py")
        found = importlib.util.spec_from_file_location(name, path)
        assert found is not None
        assert found.loader is not None
        module = importlib.util.module_from_spec(found)
        sys.modules[name] = module
        found.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def syn() -> Any:
    """The generator of synthetic stores."""
    return _load()


@pytest.fixture(scope="session")
def report(syn: Any) -> dict[str, bytes]:
    """All files of the report of a full synthetic store."""
    return render(syn.suite(), syn.source())
