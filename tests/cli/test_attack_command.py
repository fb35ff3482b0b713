"""`attack`: what it prints besides the numbers."""

from __future__ import annotations


def table(text):
    """The rows of a table with these columns, each as a dict."""
    lines = [line.split() for line in text.splitlines()]
    start = next(number for number, line in enumerate(lines) if line[:1] == ["metric"])
    return [dict(zip(lines[start], line, strict=True)) for line in lines[start + 1 :]]


def test_tables_show_what_tells_two_attacks_apart(cli, store):
    options = ["--attack", "pgd", "--limit", "8", "--step-size", "1/255"]
    printed = []
    for more in (
        ["--steps", "2"], ["--steps", "3"], ["--restarts", "2"], ["--norm", "l2"],
    ):  # fmt: skip
        ran = cli("attack", *options, "--eps", "8/255", *more)
        assert ran.code == 0, ran.err
        printed += table(ran.out)
    apart = [(row["norm"], row["steps"], row["restarts"]) for row in printed]
    assert apart == [("linf", "2", "1"), ("linf", "3", "1"), ("linf", "2", "2"), ("l2", "2", "1")]
    shown = [row for row in table(cli("runs", "show", "last").out) if row["attack"] == "pgd"]
    assert sorted((row["norm"], row["steps"], row["restarts"]) for row in shown) == sorted(apart)
    assert "norm" not in cli("eval").out


def test_the_place_of_adversarial_examples_is_said(cli, store, tiny):
    options = ["--attack", "fgsm", "--limit", "4", "--save-adversarial", "kept"]
    ran = cli("attack", *options, "--eps", "8/255")
    assert ran.code == 0, ran.err
    (folder,) = (tiny / "kept").iterdir()
    said = f"wrote 2 files of adversarial examples and pictures to kept/{folder.name}\n"
    assert said in ran.err
    assert len(list(folder.iterdir())) == 2
    assert "wrote" not in cli("attack", *options, "--eps", "8/255").err, "it was there"
    assert "wrote" not in cli("attack", "--attack", "fgsm", "--eps", "0.1", "--limit", "4").err

    assert cli("train", "--recipe", "tiny.yaml", "--seed", "1").code == 0
    ran = cli("attack", *options, "--eps", "4/255")
    assert "wrote 4 files" in ran.err
    assert "to kept, in a folder for each run\n" in ran.err
