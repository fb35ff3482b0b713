"""Trainings here survive kills, not power cuts: waiting for the disk would take most time."""

import os

import pytest


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
