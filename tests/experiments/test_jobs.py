"""From suites to runs and jobs: settings resolved, long trainings first, nothing wanted twice."""

from __future__ import annotations

import pytest

from attndrop_repro.config.errors import UsageError
from attndrop_repro.config.load import load_recipe
from attndrop_repro.config.suite import Suite, load_suite
from attndrop_repro.experiments import jobs, reproduce
from attndrop_repro.experiments.jobs import Job
from attndrop_repro.experiments.specs import make_specs
from attndrop_repro.store import Store


def suite(**changes) -> Suite:
    base = {"name": "s", "title": "t", "recipes": ["digits-vit"], "methods": ["none"]}
    return Suite(**{**base, **changes})


def test_settings_come_from_the_recipe_then_from_the_command_line_then_from_defaults():
    recipe = load_recipe("digits-vit", ["attentiondrop-hard.k=3", "lam=0.25"])
    (spec,) = make_specs(recipe, "consistency+attentiondrop-hard", [7])
    assert spec.method == "attentiondrop-hard+consistency"
    assert spec.seed == 7
    assert spec.settings["attentiondrop-hard"]["k"] == 3
    assert spec.settings["attentiondrop-hard"]["p"] == 0.1
    assert spec.settings["consistency"]["lam"] == 0.25


def test_methods_and_seeds_of_one_recipe_share_all_but_the_method():
    recipe = load_recipe("digits-vit")
    first, second = make_specs(recipe, "dropkey", [0, 1])
    assert first.config_hash == second.config_hash
    assert first.run_id != second.run_id
    (plain,) = make_specs(recipe)
    assert plain.method == "none"
    assert plain.recipe == first.recipe


@pytest.mark.parametrize("override", ["q=1", "dropkey.q=1", "dropkey.p=2", "dropout.p=0.5"])
def test_settings_that_do_not_fit_are_refused(override):
    with pytest.raises(UsageError):
        make_specs(load_recipe("digits-vit", [override]), "dropkey")


def test_the_shipped_suites_resolve():
    for name in ("digits",):
        specs = jobs.suite_specs(load_suite(name))
        assert len({spec.run_id for spec in specs}) == len(specs) == 24


def test_two_spellings_of_one_method_are_one_run():
    both = suite(methods=["none", "dropkey+dropout", "dropout+dropkey"], seeds=[0])
    assert len(jobs.suite_specs(both)) == 2


def test_a_plan_of_an_empty_store_wants_everything_and_long_trainings_first(tmp_path):
    wanted = suite(methods=["none", "dropkey", "rdrop"], seeds=[0, 1], measure=["eval", "attack"])
    planned = jobs.plan(wanted, Store(tmp_path / "results"))
    assert len(planned.missing) == 6 * 3
    assert planned.wanted == {"train": 6, "eval": 6, "attack": 6}
    assert jobs.counts(planned.missing) == "6 train, 6 eval, 6 attack"
    longest = sorted(planned.missing, key=lambda job: -job.cost)[:2]
    assert {(job.kind, job.spec.method) for job in longest} == {("train", "rdrop")}
    keys = {job.key for job in planned.missing}
    assert len(keys) == len(planned.missing)
    assert all(set(job.after) <= keys for job in planned.missing)
    assert planned.rows()[0] == {
        "recipe": "digits-vit", "method": "none", "runs": 2, "train": 0, "eval": 0, "attack": 0,
    }  # fmt: skip
    assert not (tmp_path / "results").exists()


def test_workers_share_the_cores_by_the_recipes_threads(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduce, "cores", lambda: 8)
    (spec,) = make_specs(load_recipe("digits-vit", ["runtime.threads=3"]))
    missing = tuple(Job("train", spec.model_copy(update={"seed": seed})) for seed in range(5))
    assert reproduce.default_workers(jobs.Plan((spec,), missing, {})) == 2
    assert reproduce.default_workers(jobs.Plan((spec,), missing[:1], {})) == 1
    assert reproduce.default_workers(jobs.Plan((spec,), (), {})) == 1
