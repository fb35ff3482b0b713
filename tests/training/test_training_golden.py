"""A golden loss curve for each method; `support/golden.py` writes them anew."""

from __future__ import annotations

import json

import pytest
from support.golden import FILE, losses, names


@pytest.mark.parametrize("name", names())
def test_losses_are_what_they_were(name: str) -> None:
    golden = json.loads(FILE.read_text())
    assert losses(name) == pytest.approx(golden[name], rel=1e-6), (
        f"the training of {name} has changed; if that is meant, run tests/support/golden.py"
    )


def test_no_method_is_forgotten_or_left_over() -> None:
    assert set(json.loads(FILE.read_text())) == set(names())
