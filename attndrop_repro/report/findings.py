"""The summary in plain words: what was compared, what the data show, and what they do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from attndrop_repro.report import cells
from attndrop_repro.report.comparisons import Comparison, family_size, typical_detectable
from attndrop_repro.report.group import Group
from attndrop_repro.report.prose import Code, Text, count, listed, say
from attndrop_repro.report.quantities import ACCURACY, Quantity
from attndrop_repro.report.statistics import Difference
from attndrop_repro.report.tables import two_pass

FEW_SEEDS = 5  # the papers' own comparisons need at least these (A19)


@dataclass(frozen=True)
class Finding:
    """What the data show on one quantity.

    Attributes:
        quantity: What was compared.
        verdict: A few words.
        text: The sentence with the numbers.
        stands: Whether any difference stands after Holm.
    """

    quantity: Quantity
    verdict: str
    text: Text
    stands: bool


@dataclass(frozen=True)
class Summary:
    """The summary of a group.

    Attributes:
        lede: The answer in one or two sentences.
        compared: What was compared.
        findings: One a quantity.
        limits: What the data do not show.
    """

    lede: Text
    compared: Text
    findings: tuple[Finding, ...]
    limits: tuple[Text, ...]


def summarise(group: Group, comparisons: Sequence[Comparison]) -> Summary:
    """Everything that is said of a group before its tables."""
    findings = [
        found
        for quantity, ones in groupby(comparisons, key=lambda one: one.quantity)
        if (found := _finding(group, quantity, list(ones))) is not None
    ]
    return Summary(
        _lede(group, comparisons),
        _compared(group),
        tuple(findings),
        tuple(_limits(group, comparisons)),
    )


def _lede(group: Group, comparisons: Sequence[Comparison]) -> Text:
    if not group.runs:
        return say("There are no runs of this suite in the results store yet.")
    if not any(group.has(quantity) for quantity in group.scalars):
        return say("No run has been measured yet: there is nothing to compare.")
    if group.baseline is None:
        return say("Nothing is compared: {why}.", why=group.no_baseline)
    baseline = Code(group.baseline)
    family = family_size(comparisons)
    if not family:
        most = max(
            (one.difference.interval.n for one in comparisons if one.difference is not None),
            default=0,
        )
        if most == 1:
            return say(
                "One seed a method: differences from {baseline} are shown, but nothing can be "
                "said about whether they would hold for another seed.",
                baseline=baseline,
            )
        return say("No method has runs that can be compared with {b} yet.", b=baseline)
    standing = [one for one in comparisons if one.difference and one.difference.stands]
    if not standing:
        return say(
            "No difference from {baseline} can be told from noise: of {tests}, none is "
            "significant after Holm's correction.",
            baseline=baseline,
            tests=count(family, "test"),
        )
    words = [
        say(
            "{method} ({what} {difference})",
            method=Code(one.method),
            what=one.quantity.sentence,
            difference=_signed(one.quantity, one.difference),
        )
        for one in standing
        if one.difference is not None
    ]
    shown: list[str | Code] = []
    for index, text in enumerate(words[:4]):
        shown += ["; " if index else "", *text]
    more = f"; and {len(words) - 4} more" if len(words) > 4 else ""
    return say(
        "{found} of {tests} {differ} from {baseline} significantly after Holm's correction: "
        "{words}{more}.",
        found=len(standing),
        tests=count(family, "comparison"),
        differ="differs" if len(standing) == 1 else "differ",
        baseline=baseline,
        words=tuple(shown),
        more=more,
    )


def _compared(group: Group) -> Text:
    statuses = [None if run is None else run.status for _, _, run in group.listed()]
    finished = statuses.count("finished")
    words = {"failed": "failed", "running": "still running", "interrupted": "interrupted"}
    beside = [
        f"; {statuses.count(status)} {word}"
        for status, word in (*words.items(), (None, "not started"))
        if statuses.count(status)
    ]
    sizes = group.sizes()
    return say(
        "{methods}, recipe {recipe}{model}{data}, {seeds}; all other settings equal. "
        "{finished} of {runs} finished{beside}.{sizes}",
        methods=count(len(group.methods), "method"),
        recipe=Code(group.recipe),
        model=say(" ({model})", model=Code(group.model)) if group.model else "",
        data=say(" on {data}", data=Code(group.dataset)) if group.dataset else "",
        seeds=count(len(group.seeds), "seed") + " each",
        finished=finished,
        runs=count(len(statuses), "run"),
        beside="".join(beside),
        sizes=f" {sizes}." if sizes else "",
    )


def _finding(group: Group, quantity: Quantity, ones: Sequence[Comparison]) -> Finding | None:
    found = [(one.method, one.difference) for one in ones if one.difference is not None]
    if not found or group.baseline is None:
        return None
    reference = group.values(quantity, group.baseline)
    level = cells.estimate(quantity, reference, {}).text
    method, widest = max(found, key=lambda pair: pair[1].size)
    largest = say(
        "{baseline} has {level}. Largest difference: {method}, {difference}{p}.",
        baseline=Code(group.baseline),
        level=f"{level} {quantity.unit}".rstrip(),
        method=Code(method),
        difference=_signed(quantity, widest),
        p=_p(widest),
    )
    standing = [one for one in ones if one.difference is not None and one.difference.stands]
    typical = typical_detectable(ones)
    if typical is None:
        text = say("{largest} No test: too few seeds in common.", largest=largest)
        return Finding(quantity, "not tested", text, False)
    power = say(
        " Before correction, {n} could typically have shown a true difference of {typical}.",
        n=count(max(difference.interval.n for _, difference in found), "seed"),
        typical=quantity.apart(typical).lstrip("+"),
    )
    if not standing:
        text = say("{largest}{power}", largest=largest, power=power)
        return Finding(quantity, "no difference shown", text, False)
    words = listed([Code(one.method) for one in standing])
    text = say("{largest} Significant: {words}.{power}", largest=largest, words=words, power=power)
    return Finding(quantity, _direction(quantity, standing), text, True)


def _p(difference: Difference) -> str:
    if difference.p is None or difference.p_holm is None:
        return ""
    own, corrected = (cells.p_value(p).text for p in (difference.p, difference.p_holm))
    signs = [text if text.startswith("<") else f"= {text}" for text in (own, corrected)]
    return f" (p {signs[0]}, after Holm {signs[1]})".replace(" = ", "\u00a0=\u00a0")


def _direction(quantity: Quantity, standing: Sequence[Comparison]) -> str:
    signs = {one.difference.up for one in standing if one.difference is not None}
    if len(signs) > 1:
        return "differences both ways"
    up = signs.pop()
    if quantity.better == 0:
        return "higher" if up else "lower"
    return "better" if up == (quantity.better > 0) else "worse"


def _signed(quantity: Quantity, difference: Difference | None) -> str:
    if difference is None:
        return ""
    mean = difference.interval
    text = quantity.apart(mean.mean)
    if mean.low is None or mean.high is None:
        return f"{text}, one seed"
    low, high = (quantity.write_apart(end, end=True) for end in (mean.low, mean.high))
    return f"{text} [{low}, {high}]"


def _limits(group: Group, comparisons: Sequence[Comparison]) -> list[Text]:
    limits = [
        say(
            "This is a check at small scale. It decides no claim that the AttentionDrop paper "
            "(arXiv 2504.12088) makes at its own scale, neither for nor against."
        )
    ]
    seeds = len(group.seeds)
    if comparisons and seeds == 1:
        limits.append(say("One seed a method says nothing about how results spread over seeds."))
    elif comparisons and seeds < FEW_SEEDS:
        limits.append(
            say(
                "{n} a method are few: intervals are wide, and that a difference is not "
                "significant does not mean that there is none.",
                n=count(seeds, "seed"),
            )
        )
    elif comparisons:
        limits.append(say("That a difference is not significant does not mean that there is none."))
    examples = group.examples(ACCURACY)
    if examples:
        limits.append(
            say(
                "All seeds share one test set of {n}: intervals cover seeds, not other data.",
                n=count(max(examples), "example"),
            )
        )
    attacks = group.attacks()
    if attacks:
        limits.append(
            say(
                "Robust accuracy under {attacks} is an upper bound: a stronger attack may break "
                "more.",
                attacks=listed(attacks),
            )
        )
    doubled = two_pass(group)
    if doubled and group.runs:
        limits.append(
            say(
                "{methods} used twice the compute of the others: at equal epochs, not at equal "
                "cost.",
                methods=doubled,
            )
        )
    return limits
