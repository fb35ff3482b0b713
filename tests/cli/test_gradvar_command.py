"""`gradvar`: at which epochs a run is measured, whatever it kept."""

from __future__ import annotations

import json

import pytest

from attndrop_repro.store import Store


def epochs(tiny):
    frame = Store(tiny / "results").frame()
    return set(frame[frame["metric"] == "gradient_variance"]["epoch"])


def test_the_last_epoch_is_that_of_the_final_weights_kept_as_a_snapshot_or_not(cli, tiny):
    train = ["train", "--recipe", "tiny.yaml", "--set", "training.snapshots=[0]"]
    assert cli(*train).code == 0
    ran = cli("gradvar", "--epoch", "2", "--json")
    assert ran.code == 0, ran.err
    assert {row["epoch"] for row in json.loads(ran.out)} == {2}
    ran = cli("gradvar", "--epoch", "1")
    assert (ran.code, "it kept: 0, 2" in ran.err) == (1, True)


@pytest.mark.parametrize(
    ("select", "measured", "said"),
    [("last", {0, 1}, "epochs 2, 5; measured: 0, 1"), ("best", {0, 1}, "0, the final ones")],
)
def test_a_shortened_run_is_measured_at_what_it_kept(cli, tiny, select, measured, said):
    text = (tiny / "tiny.yaml").read_text().replace("{epochs: [0, 2]", "{epochs: [0, 2, 5]")
    (tiny / "tiny.yaml").write_text(text)
    shorter = ["--set", "training.epochs=1", "--set", f"training.select={select}"]
    assert cli("train", "--recipe", "tiny.yaml", *shorter).code == 0
    assert cli("gradvar", "--epoch", "0").code == 0, "which does not count as the final weights"
    ran = cli("gradvar", "--json")
    assert ran.code == 0, ran.err
    assert said in ran.err
    assert ran.err.count("kept no weights") == 1
    assert epochs(tiny) == measured
    assert "nothing to do" in cli("gradvar").err
