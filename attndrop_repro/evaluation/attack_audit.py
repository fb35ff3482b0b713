"""Whether an attack did its work: signs of gradient masking and of broken attacks.

A failed audit does not change a number; it says that the number may be too high (Carlini et al.
2019; Croce and Hein 2020). What each one means and what to do is in ``docs/warnings.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from attndrop_repro.config.fractions import Eps
from attndrop_repro.data import ImageSplit
from attndrop_repro.evaluation.attack_setting import AttackSetting
from attndrop_repro.evaluation.attacks import AttackResult, attack

TOLERANCE = 1e-6  # rounding of pixels in float32
SLACK = 0.01  # two attacks that are equally good differ by chance
FLAT = 0.1  # share of examples without any gradient that is too many
LARGE = {"linf": Eps("0.5", 0.5), "l2": Eps("1e3", 1e3)}  # destroys any image
NEAR_ZERO = 0.05
LARGE_EXAMPLES = 64


def audit(
    result: AttackResult, others: Sequence[AttackResult], large: float | None
) -> dict[str, Any]:
    """What the row of a result says of the attack itself.

    Args:
        result: The result.
        others: All results of the same model and examples.
        large: Robust accuracy at a size that destroys any image, or None when not measured.

    Returns:
        JSON: the figures, each check as true, false or null (nothing to compare with), and under
        "failed" the names of those that are false.
    """
    s = result.setting
    eps = s.eps.value
    fgsm = [r for r in others if r.setting.name == "fgsm" and _same_size(r.setting, s)]
    smaller = [r for r in others if _same_kind(r.setting, s) and r.setting.eps.value < eps]
    checks: dict[str, bool | None] = {
        "perturbation-within-eps": result.largest <= eps + TOLERANCE * max(1.0, eps),
        "pixels-in-range": 0 <= result.lowest <= result.highest <= 1,
        "gradients-not-flat": result.flat <= FLAT if eps > 0 else None,
        "pgd-at-most-fgsm": None,
        "falls-with-eps": None,
        "near-zero-at-large-eps": None if large is None else large <= NEAR_ZERO,
    }
    if s.name != "fgsm" and fgsm:
        checks["pgd-at-most-fgsm"] = (
            result.robust_accuracy <= min(r.robust_accuracy for r in fgsm) + SLACK
        )
    if smaller:
        checks["falls-with-eps"] = (
            result.robust_accuracy <= min(r.robust_accuracy for r in smaller) + SLACK
        )
    return {
        "largest_perturbation": result.largest,
        "lowest_pixel": result.lowest,
        "highest_pixel": result.highest,
        "flat_gradients": result.flat,
        "robust_accuracy_at_large_eps": large,
        "checks": checks,
        "failed": sorted(name for name, passed in checks.items() if passed is False),
    }


def at_large_eps(
    model: nn.Module,
    split: ImageSplit,
    setting: AttackSetting,
    *,
    seed: int,
    batch_size: int,
    limit: int | None = None,
) -> float:
    """Robust accuracy of the first examples at a size that destroys any image; near 0, or broken.

    PGD of as many steps as `setting`, each of a quarter of that size.
    """
    eps = LARGE[setting.norm]
    strong = AttackSetting(
        "pgd", eps, norm=setting.norm, steps=max(setting.steps, 20),
        step_size=Eps("", eps.value / 4), target=None, draws=setting.draws,
    )  # fmt: skip
    examples = min(LARGE_EXAMPLES, limit or LARGE_EXAMPLES)
    (result,) = attack(model, split, [strong], seed=seed, batch_size=batch_size, limit=examples)
    return result.robust_accuracy


def _same_size(one: AttackSetting, other: AttackSetting) -> bool:
    return (one.eps, one.norm, one.target, one.draws) == (
        other.eps, other.norm, other.target, other.draws,
    )  # fmt: skip


def _same_kind(one: AttackSetting, other: AttackSetting) -> bool:
    return (one.label, one.norm, one.steps, one.restarts) == (
        other.label, other.norm, other.steps, other.restarts,
    )  # fmt: skip
