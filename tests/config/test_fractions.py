"""Sizes of perturbations as people write them (bug report P03)."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attndrop_repro.config.errors import UsageError
from attndrop_repro.config.fractions import parse_fraction


@pytest.mark.parametrize(
    ("text", "label", "value"),
    [
        ("8/255", "8/255", 0.03137254901960784),
        (" 8 / 255 ", "8/255", 0.03137254901960784),
        ("16/510", "16/510", 0.03137254901960784),
        ("0.031", "0.031", 0.031),
        (0.031, "0.031", 0.031),
        ("3.1e-2", "0.031", 0.031),
        ("0", "0", 0.0),
        (0, "0", 0.0),
        ("0/1", "0/1", 0.0),
        ("1", "1", 1.0),
        ("1.0", "1", 1.0),
        ("255/255", "255/255", 1.0),
        (".5", "0.5", 0.5),
        ("0.123456789", "0.123456789", 0.123456789),
    ],
)
def test_value_and_label(text, label, value):
    assert parse_fraction(text) == (label, value)


def test_a_decimal_and_a_fraction_are_two_settings():
    assert parse_fraction("0.031").label != parse_fraction("8/255").label


@pytest.mark.parametrize(
    "text",
    [
        "-1/255",
        "1/-255",
        "-0.5",
        "nan",
        "NaN",
        "inf",
        "-inf",
        "Infinity",
        "1e999",
        "1/0",
        "0/0",
        "8/",
        "/255",
        "/",
        "",
        "8/255/2",
        "256/255",
        '__import__("os")',
        "0x10",
        "1_0",
        "1,5",
        "٨/255",
        True,
        float("nan"),
        float("inf"),
        -1.0,
    ],
)
def test_refused_in_one_line(text):
    with pytest.raises(UsageError) as error:
        parse_fraction(text)
    assert "\n" not in str(error.value)
    assert "eps" in str(error.value)


@pytest.mark.parametrize("text", ["8", 8, 8.0, "8.0"])
def test_whole_pixel_steps_get_a_hint(text):
    with pytest.raises(UsageError, match=r"pixels lie in \[0, 1\]; did you mean 8/255\?"):
        parse_fraction(text)


@pytest.mark.parametrize(("text", "value"), [("3", 3.0), ("256/255", 256 / 255), ("0.5", 0.5)])
def test_a_length_over_all_pixels_may_be_more_than_1(text, value):
    assert parse_fraction(text, norm="l2").value == value


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "1e999", "1/0", "3/", ""])
def test_what_is_no_length_is_refused(text):
    with pytest.raises(UsageError, match="eps") as error:
        parse_fraction(text, norm="l2")
    assert "[0, 1]" not in str(error.value)


@settings(max_examples=60, deadline=None)
@given(below=st.integers(1, 10**6), data=st.data())
def test_any_fraction_is_the_nearest_float(below, data):
    above = data.draw(st.integers(0, below))
    assert parse_fraction(f"{above}/{below}").value == float(Fraction(above, below))


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=10) | st.text("0123456789./e+-", max_size=10))
def test_no_text_leads_to_a_traceback_or_a_value_outside(text):
    try:
        eps = parse_fraction(text)
    except UsageError:
        return
    assert 0 <= eps.value <= 1
    assert parse_fraction(eps.label) == eps
