"""`eval`, `calibrate`, `attack`, `gradvar`, `compare`: whom they measure, and what they print."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from attndrop_repro.store import Store

KINDS = {
    "eval": "accuracy",
    "calibrate": "ece_after_temperature",
    "attack": "robust_accuracy",
    "gradvar": "gradient_variance",
}


def rows(store, metric):
    frame = Store(store).frame()
    return frame[frame["metric"] == metric]


@pytest.mark.parametrize(("kind", "metric"), KINDS.items())
def test_every_finished_run_that_lacks_it_is_measured_once(cli, store, kind, metric):
    ran = cli(kind)
    assert ran.code == 0, ran.err
    assert metric in ran.out
    count = len(rows(store, metric))
    assert count == {"attack": 4, "gradvar": 2}.get(kind, 1)
    files = len(list((store / "measurements").iterdir()))

    again = cli(kind)
    assert (again.code, again.out) == (0, "")
    assert again.err == "nothing to do: it was measured before; --force measures again\n"
    assert len(list((store / "measurements").iterdir())) == files

    forced = cli(kind, "--run", "last", "--force", "--json")
    found = json.loads(forced.out)
    assert {row["metric"] for row in found} >= {metric}
    assert all(row["run_id"].startswith("tiny--none") for row in found)
    assert len(rows(store, metric)) == count  # the newest counts, once


def test_runs_are_chosen_by_recipe_and_split(cli, store):
    assert "no finished run of digits-vit" in cli("eval", "--recipe", "digits-vit").err
    assert cli("eval", "--recipe", "nosuch").code == 2
    assert cli("eval", "--recipe", "tiny", "--split", "validation").code == 0
    assert list(rows(store, "accuracy")["split"]) == ["validation"]
    assert cli("eval", "--recipe", "tiny.yaml").code == 0
    assert sorted(rows(store, "accuracy")["split"]) == ["test", "validation"]
    assert "'validation'" in cli("eval", "--split", "validatoin").err


def test_an_unfinished_run_is_not_measured(cli, store):
    (info,) = Store(store).runs()
    Store(store).run_dir(info.run_id).set_status("interrupted")
    ran = cli("eval", "--run", "last")
    assert ran.code == 2
    assert "is interrupted, not finished" in ran.err
    assert cli("eval").code == 2


def test_a_run_that_cannot_be_measured_stops_no_other(cli, store):
    assert cli("train", "--recipe", "tiny.yaml", "--seed", "1").code == 0
    broken, _ = Store(store).runs()
    for file in (store / "runs" / broken.run_id / "weights").glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:100])
    ran = cli("eval")
    assert ran.code == 1
    assert f"attndrop: error: {broken.run_id}: " in ran.err
    assert len(rows(store, "accuracy")) == 1


def test_sizes_of_attacks_are_exact_and_two_spellings_are_two_settings(cli, store):
    options = ["--attack", "fgsm", "--limit", "8"]
    assert cli("attack", "--eps", "8/255", "--eps", "0.031", *options).code == 0
    found = rows(store, "robust_accuracy").set_index("eps_label")["eps"]
    assert found["8/255"] == 8 / 255
    assert found["0.031"] == 0.031


@pytest.mark.parametrize(
    "eps", ["-1/255", "nan", "inf", "1/0", "8/", "8", "__import__('os')", "", "1/255/255"]
)
def test_sizes_that_are_none_are_refused_and_nothing_is_written(cli, store, eps):
    before = sorted((store / "measurements").iterdir())
    ran = cli("attack", "--eps", eps)
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert sorted((store / "measurements").iterdir()) == before


def test_in_l2_sizes_may_be_more_than_a_pixel(cli, store):
    options = ["--attack", "pgd", "--steps", "2", "--limit", "8"]
    ran = cli("attack", *options, "--norm", "l2", "--eps", "3", "--step-size", "1.5")
    assert ran.code == 0, ran.err
    (found,) = rows(store, "robust_accuracy").to_dict("records")
    assert (found["norm"], found["eps"], found["eps_label"]) == ("l2", 3.0, "3")
    assert found["step_size"] == 1.5
    assert cli("attack", *options, "--norm", "l2", "--eps", "2").code == 0
    newest = rows(store, "robust_accuracy").set_index("eps_label")
    assert newest.loc["2", "step_size"] == 2.5, "of no --step-size: 2.5 eps / steps"


def test_in_l2_the_usual_attack_is_pgd(cli, store):
    ran = cli("attack", "--norm", "l2", "--eps", "1", "--limit", "8")
    assert ran.code == 0, ran.err
    (found,) = rows(store, "robust_accuracy").to_dict("records")
    assert (found["attack"], found["norm"], found["steps"]) == ("pgd", "l2", 2)
    assert "linf" in cli("attack", "--norm", "l2", "--attack", "fgsm", "--eps", "1").err


def test_unknown_attacks_get_the_nearest_name(cli, store):
    assert "'pgd'" in cli("attack", "--attack", "pdg").err


def test_adversarial_examples_are_kept_by_run(cli, store, tiny):
    options = ["--attack", "fgsm", "--eps", "8/255", "--limit", "4"]
    assert cli("attack", *options, "--save-adversarial", "kept").code == 0
    (folder,) = (tiny / "kept").iterdir()
    assert folder.name.startswith("tiny--none")
    (file,) = folder.glob("*.safetensors")
    kept = load_file(file)
    assert (kept["adversarial"] - kept["clean"]).abs().max() <= 8 / 255 + 1e-6


def test_an_attack_that_fails_its_audit_is_a_warning(cli, store):
    ran = cli("attack", "--attack", "pgd", "--eps", "8/255", "--steps", "1", "--limit", "16")
    audit = json.loads(rows(store, "robust_accuracy").iloc[-1]["detail"])["audit"]
    assert ("warning: " in ran.err) == bool(audit["failed"])


def test_corruptions(cli, store):
    assert cli("eval", "--corruption", "noise", "--severity", "2").code == 0
    assert list(rows(store, "accuracy")["split"]) == ["test+noise-2"]
    assert cli("eval", "--severity", "2").code == 2
    assert cli("eval", "--corruption-dir", "c").code == 2
    ran = cli("eval", "--corruption", "fog", "--corruption-dir", "c")
    assert ran.code == 1
    assert "fog" in ran.err
    assert "'noise'" in cli("eval", "--corruption", "niose").err


@pytest.mark.parametrize("kind", ["eval", "calibrate"])
@pytest.mark.parametrize("how", [[], ["--from-logits"]], ids=["model", "logits"])
def test_other_bins_take_the_place_of_no_metric(cli, store, kind, how):
    assert cli(kind).code == 0
    columns = ["value", "detail"]
    before = Store(store).frame().set_index("metric")[columns]
    ran = cli(kind, "--bins", "5", *how, "--json")
    assert ran.code == 0, ran.err
    other = {row["metric"]: row["detail"] for row in json.loads(ran.out)}
    assert other["ece_5_bins"]["bin_count"] == 5
    assert not {"ece", "mce", "ece_after_temperature"} & set(other)
    after = Store(store).frame().set_index("metric")[columns].loc[before.index]
    unlike = (after != before) & after.notna()
    assert not unlike.any(axis=None), "neither a value nor an interval nor bins"
    for options in ([], ["--bins", "15"], ["--bins", "5"]):
        assert "nothing to do" in cli(kind, *options).err


def test_bins_that_are_a_recipes_own_have_the_plain_name(cli, tiny):
    recipe = (tiny / "tiny.yaml").read_text() + "  ece_bins: 5\n"
    (tiny / "tiny.yaml").write_text(recipe)
    assert cli("train", "--recipe", "tiny.yaml").code == 0
    ran = cli("eval", "--bins", "5", "--json")
    assert [row["metric"] for row in json.loads(ran.out)][-1] == "ece"
    assert "nothing to do" in cli("eval").err
    ran = cli("eval", "--bins", "15", "--json")
    assert [row["metric"] for row in json.loads(ran.out)][-1] == "ece_15_bins"


def test_metrics_from_stored_logits(cli, store):
    ran = cli("eval", "--from-logits")
    assert ran.code == 1
    assert "no logits" in ran.err
    assert cli("calibrate").code == 0
    for kind in ("eval", "calibrate"):
        assert cli(kind, "--from-logits").code == 0
    assert len(rows(store, "accuracy")) == 1


def test_epochs_that_were_not_kept(cli, store):
    ran = cli("gradvar", "--epoch", "0", "--epoch", "1")
    assert ran.code == 1
    assert "it kept: 0, 2" in ran.err
    assert not len(rows(store, "gradient_variance")), "nor is the epoch measured that there is"


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("eval", []),
        ("calibrate", []),
        ("attack", ["--attack", "pgd", "--eps", "16/255", "--steps", "3", "--restarts", "2"]),
    ],
)
def test_batches_change_no_number(cli, store, kind, options):
    found = []
    for size in ("7", "64"):
        ran = cli(kind, "--run", "last", "--force", "--json", "--batch-size", size, *options)
        assert ran.code == 0, ran.err
        found.append([(row["metric"], row["value"]) for row in json.loads(ran.out)])
    assert found[0] == found[1]


def test_the_size_of_a_batch_whose_gradient_is_measured(cli, store):
    options = ["--run", "last", "--epoch", "0", "--examples", "32"]
    ran = cli("gradvar", *options, "--per", "batch", "--batch-size", "8", "--json")
    assert ran.code == 0, ran.err
    first = json.loads(ran.out)[0]
    assert (first["n"], first["detail"]["batch_size"]) == (4, 8)
    wrong = cli("gradvar", *options, "--batch-size", "8")
    assert (wrong.code, "--per batch" in wrong.err) == (2, True)


def test_processes_that_read_images_change_no_number(cli, tiny):
    import timm
    from PIL import Image
    from safetensors.torch import save_file

    torch.manual_seed(0)
    model = timm.create_model("test_vit", img_size=32, num_classes=2)
    save_file(model.state_dict(), tiny / "mine.safetensors")
    for split in ("train", "val"):
        for label, name in enumerate("ab"):
            (tiny / "img" / split / name).mkdir(parents=True)
            for number in range(6):
                colour = (40 * number, 200 * label, 90)
                Image.new("RGB", (40, 40), colour).save(
                    tiny / "img" / split / name / f"{number}.png"
                )
    outside = ["--model", "test_vit", "--checkpoint", "mine.safetensors", "--image-size", "32"]
    outside += ["--dataset", "imagefolder", "--data-dir", "img", "--force", "--json"]
    found = []
    for workers in ("0", "2"):
        ran = cli("eval", *outside, "--workers", workers, "--batch-size", "5")
        assert ran.code == 0, ran.err
        found.append([(row["metric"], row["value"]) for row in json.loads(ran.out)])
    assert found[0] == found[1]


def test_a_model_from_elsewhere(cli, tiny):
    import timm

    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=16, in_chans=1, num_classes=10)
    torch.save(model.state_dict(), tiny / "mine.pt")
    outside = ["--model", "vit_tiny_patch16_224", "--checkpoint", "mine.pt"]
    ran = cli("eval", *outside)
    assert ran.code == 2
    assert "--dataset" in ran.err
    assert cli("eval", *outside, "--dataset", "digits", "--run", "last").code == 2
    assert cli("eval", *outside, "--dataset", "digits", "--from-logits").code == 2
    other_size = cli("eval", *outside, "--dataset", "digits", "--image-size", "32")
    assert other_size.code == 1, "a checkpoint of other shapes is not loaded in part"
    assert "--resample-positions" in other_size.err
    assert not (tiny / "results").exists()

    ran = cli("eval", *outside, "--dataset", "digits", "--image-size", "16", "--json")
    assert ran.code == 0, ran.err
    found = {row["metric"]: row for row in json.loads(ran.out)}
    assert found["accuracy"]["n"] == 449
    name = found["accuracy"]["run_id"]
    assert name.startswith("outside--vit_tiny_patch16_224--")
    assert len(rows(tiny / "results", "accuracy")) == 1

    (tiny / "mine.pt").unlink()  # the logits are enough
    ran = cli("eval", "--from-logits", "--run", name, "--json")
    assert ran.code == 0, ran.err
    again = {row["metric"]: row for row in json.loads(ran.out)}
    assert {metric: row["value"] for metric, row in again.items()} == {
        metric: row["value"] for metric, row in found.items()
    }
    assert again["accuracy"]["detail"] == found["accuracy"]["detail"]
    assert len(rows(tiny / "results", "accuracy")) == 1
    ran = cli("calibrate", "--from-logits", "--run", name)
    assert ran.code == 1
    assert "no logits of validation" in ran.err
    assert cli("eval", "--from-logits", "--run", name[:-1]).code == 0
    ran = cli("eval", "--from-logits", "--run", f"{name}x")
    assert ran.code == 2
    assert name in ran.err
    assert cli("results", "verify").err == "results: all is well\n"


def test_an_exported_model_is_measured_like_its_run(cli, store):
    assert cli("eval").code == 0
    ran = cli("export", "--run", "last", "--out", "mine.safetensors")
    assert ran.code == 0
    name, *arguments = ran.err.strip().rpartition(", for ")[2].split(", ")
    command = ["eval", "--checkpoint", "mine.safetensors", "--model", name, "--dataset", "digits"]
    ran = cli(*command, "--resample-positions")
    assert ran.code == 1
    assert "--model-arg" in ran.err
    given = [part for each in arguments for part in ("--model-arg", each)]
    ran = cli(*command, *given, "--json")
    assert ran.code == 0, ran.err
    ours = {row["metric"]: row["value"] for row in json.loads(ran.out)}
    run = rows(store, "accuracy")
    run = run[~run["run_id"].str.startswith("outside--")]
    assert ours["accuracy"] == pytest.approx(run["value"].item(), abs=0.01)
    assert cli(*command, "--model-arg", "depth").code == 2


def test_two_runs_compared_example_by_example(cli, store):
    assert "has no logits of test: attndrop eval" in cli("compare", "last", "last").err
    assert cli("train", "--recipe", "tiny.yaml", "--seed", "1").code == 0
    assert cli("eval").code == 0
    ran = cli("compare", "tiny--none--s0", "tiny--none--s1")
    assert ran.code == 0
    assert "McNemar p" in ran.out
    found = json.loads(cli("compare", "tiny--none--s0", "tiny--none--s1", "--json").out)
    assert found["n"] == 449
    total = found["both_right"] + found["both_wrong"]
    assert total + len(found["only_first"]) + len(found["only_second"]) == 449
