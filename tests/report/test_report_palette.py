"""Colours must be told apart by people with the common colour blindnesses, on both pages."""

import itertools
import re

import numpy as np
import pytest

from attndrop_repro.report import palette
from attndrop_repro.report.palette import look

COMPARED = (
    "none", "dropout", "dropconnect", "rdrop", "attentiondrop-hard", "attentiondrop-blur",
    "attentiondrop-hard+consistency", "attentiondrop-blur+consistency",
)  # fmt: skip
MORE = ("attention-dropout", "dropkey", "dropattention", "stochastic-depth", "drophead")
DARK_PAPER = palette.DARK[palette.PAPER]

# Machado, Oliveira, Fernandes (2009), severity 1.0, on linear RGB.
SEEN_BY = {
    "all": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
         [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
         [-0.011820, 0.042940, 0.968881]]
    ),
}  # fmt: skip
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750],
     [0.0193339, 0.1191920, 0.9503041]]
)  # fmt: skip


def linear(colour):
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    xyz = TO_XYZ @ np.clip(rgb, 0, 1) / np.array([0.95047, 1.0, 1.08883])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(one, other):
    weights = np.array([0.2126, 0.7152, 0.0722])
    low, high = sorted(float(weights @ linear(colour)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("eyes", SEEN_BY)
@pytest.mark.parametrize("page", ["colour", "dark"])
def test_compared_methods_differ_for_all_eyes(eyes, page):
    seen = {name: lab(SEEN_BY[eyes] @ linear(getattr(look(name), page))) for name in COMPARED}
    for one, other in itertools.combinations(COMPARED, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > 15, (one, other)


@pytest.mark.parametrize(
    "method", [*COMPARED, *MORE, "dropkey+consistency", "new", "a+b", "x" * 40]
)
def test_every_colour_stands_out_from_the_paper(method):
    assert contrast(look(method).colour, palette.PAPER) > 3
    assert contrast(look(method).dark, DARK_PAPER) > 3


def test_a_second_cue_beside_colour():
    cues = {(look(name).marker, look(name).dash, look(name).hollow) for name in (*COMPARED, *MORE)}
    assert len(cues) == len(COMPARED) + len(MORE)


def test_a_look_depends_on_the_method_alone():
    assert look("consistency+attentiondrop-hard") is look("attentiondrop-hard+consistency")
    assert look("none+dropkey") is look("dropkey")
    assert look("b+a") == look("a+b")
    assert look("never-seen") == look("never-seen")
    looks = {(look(f"new-{i}").colour, look(f"new-{i}").marker) for i in range(30)}
    assert len(looks) > 20
    assert all(re.fullmatch("#[0-9a-f]{6}", look(f"new-{i}").colour) for i in range(30))


def test_text_reads_on_both_pages():
    for light in (palette.INK, palette.MUTED):
        assert contrast(light, palette.PAPER) > 4.5
        assert contrast(palette.DARK[light], DARK_PAPER) > 4.5
