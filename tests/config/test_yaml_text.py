"""Reading YAML: plain values, their places, and what is refused."""

import contextlib
import math
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from attndrop_repro.config.errors import UsageError
from attndrop_repro.config.yaml_text import dump, parse_value, read_document


def read(tmp_path: Path, text: str | bytes):
    file = tmp_path / "r.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_document(file, "recipe")


def message(tmp_path: Path, text: str | bytes) -> str:
    with pytest.raises(UsageError) as error:
        read(tmp_path, text)
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("y", "y"),
        ("none", "none"),
        ("None", "None"),
        ("null", None),
        ("~", None),
        ("true", True),
        ("False", False),
        ("1e-3", 1e-3),
        ("1E5", 1e5),
        ("2.", 2.0),
        (".5", 0.5),
        ("-0.5", -0.5),
        ("+3", 3),
        ("0", 0),
        ("0012", "0012"),
        ("0012.5", "0012.5"),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("12e45678", "12e45678"),
        (".nan", ".nan"),
        (".inf", ".inf"),
        ("nan", "nan"),
        ("8/255", "8/255"),
        ("'3'", "3"),
        ('"null"', "null"),
        ("[1, a, null]", [1, "a", None]),
        ("{a: 1, b: [x]}", {"a": 1, "b": ["x"]}),
        ("<<", "<<"),
        ("=", "="),
    ],
)
def test_scalars_follow_the_core_schema(text, value):
    found = parse_value(text)
    assert found == value
    assert type(found) is type(value)


def test_places_are_lines_of_keys_and_items(tmp_path):
    document = read(tmp_path, "# head\na: 1\nb:\n  c: [1,\n    2]\n  d: x\n")
    assert document.tree == {"a": 1, "b": {"c": [1, 2], "d": "x"}}
    assert document.place(("a",)).endswith("r.yaml:2")
    assert document.place(("b", "c", 1)).endswith("r.yaml:5")
    assert document.place(("b", "d", "not", "there")).endswith("r.yaml:6")
    assert document.place(("nowhere",)).endswith("r.yaml:2")


def test_a_file_below_the_working_folder_is_named_from_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message(tmp_path, "a: 1\na: 2\n") == "r.yaml:2: key 'a' stands here again (line 1)"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "key 'a' stands here again (line 1)"),
        ("a:\n  x: 1\n  x: 1\n", 3, "key 'a.x' stands here again (line 2)"),
        ("a: &x 1\nb: *x\n", 1, "anchors"),
        ("a: !!python/object/apply:os.system ['true']\n", 1, "tags are not allowed"),
        ("a: !!str 3\n", 1, "tags are not allowed"),
        ("a: [1\nb: 2\n", 2, "not valid YAML"),
        ("a: b: c\n", 1, "not valid YAML"),
        ("- 1\n- 2\n", 1, "mapping"),
        ("just text\n", 1, "mapping"),
        ("a: 1\n---\nb: 2\n", 2, "single document"),
        ("[1, 2]: 3\n", 1, "a key must be one word"),
        ('a: 1\nb: "\\ud800"\n', 2, "surrogate"),
        ("a: " + "[" * 40 + "]" * 40 + "\n", 1, "nested more than"),
    ],
)
def test_refused_with_its_line(tmp_path, text, line, words):
    told = message(tmp_path, text)
    assert f"r.yaml:{line}: " in told
    assert words in told
    assert "\n" not in told


def test_all_duplicates_are_told_at_once(tmp_path):
    assert len(message(tmp_path, "a: 1\na: 2\nb: 1\nb: 2\n").splitlines()) == 2


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n", "\ufeff"])
def test_empty_file(tmp_path, text):
    assert "is empty" in message(tmp_path, text)


def test_binary_directory_missing_and_huge(tmp_path):
    assert "not text in UTF-8" in message(tmp_path, b"\x80\x02\xff\x00")
    assert "not valid YAML" in message(tmp_path, b"a: \x00\x01\n")
    assert "more than" in message(tmp_path, b"#" * 1_000_001)
    with pytest.raises(UsageError, match="is a folder"):
        read_document(tmp_path, "recipe")
    with pytest.raises(UsageError, match="No such file"):
        read_document(tmp_path / "none.yaml", "recipe")


def test_a_bomb_of_aliases_does_not_expand(tmp_path):
    bomb = "a: &a [x, x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(20)
    )
    assert "anchors" in message(tmp_path, bomb)


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    | st.sampled_from(["no", "on", "1e5", "0012", "null", "~", "", "12:30", "=", "<<", "- a", "#"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), inner)
    ),
    max_leaves=8,
)


@settings(max_examples=80, deadline=None)
@given(tree=st.dictionaries(st.text("abcno-_", min_size=1, max_size=6), plain, min_size=1))
def test_what_is_dumped_is_read_back(tmp_path_factory, tree):
    file = tmp_path_factory.getbasetemp() / "dumped.yaml"
    file.write_text(dump(tree), encoding="utf-8")
    assert read_document(file, "recipe").tree == tree


@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=60) | st.text("[]{}:,-&*!#'\"\\\n %|>?@ab01.~", max_size=40))
@example("%YAML 99999999999999999999.1\n---\na: 1")
@example('"\\U99999999"')
@example("? a\n? b")
@example("a: 1e999")
@example("9" * 5000)
def test_no_text_leads_to_anything_but_a_usage_error(text):
    with contextlib.suppress(UsageError):
        value = parse_value(text)
        assert value is None or isinstance(value, str | int | float | bool | list | dict)
        assert not (isinstance(value, float) and not math.isfinite(value))
