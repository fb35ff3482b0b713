import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.power import TTestPower

from attndrop_repro.report import statistics
from attndrop_repro.report.statistics import Difference, Mean

# Student (1908), "The probable error of a mean": hours of sleep gained with two drugs.
FIRST = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
SECOND = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]


def by_seed(values):
    return dict(enumerate(values))


def test_no_value_has_no_mean_and_one_has_no_interval():
    assert statistics.mean([]) is None
    assert statistics.mean([0.25]) == Mean(1, 0.25)


def test_interval_by_hand():
    # 1, 2, 3: mean 2, sd 1, t(0.975, 2) = 4.302653, half width 4.302653 / sqrt(3) = 2.484138
    found = statistics.mean([1.0, 2.0, 3.0])
    assert (found.n, found.mean, found.sd) == (3, 2.0, 1.0)
    assert found.low == pytest.approx(2 - 2.484138, abs=1e-6)
    assert found.high == pytest.approx(2 + 2.484138, abs=1e-6)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=8))
def test_interval_is_scipys(values):
    found = statistics.mean(values)
    if np.std(values) > 1e-6:
        own = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
        assert (found.low, found.high) == pytest.approx(own, rel=1e-9, abs=1e-9)


def test_paired_is_students_published_example():
    found = statistics.paired(by_seed(SECOND), by_seed(FIRST))
    assert found.interval.mean == pytest.approx(1.58)
    assert found.p == pytest.approx(0.002833, abs=1e-6)
    assert (found.interval.low, found.interval.high) == pytest.approx((0.7001, 2.4599), abs=1e-4)
    assert found.p == pytest.approx(stats.ttest_rel(SECOND, FIRST).pvalue, rel=1e-12)


def test_ratios_are_differences_of_logarithms():
    method, baseline = {0: 2.0, 1: 3.0, 2: 9.0}, {0: 1.0, 1: 2.0, 2: 3.0}
    found = statistics.paired_ratio(method, baseline)
    ratios = [2.0, 1.5, 3.0]
    assert found.interval.mean == pytest.approx(stats.gmean(ratios))
    logs = np.log(ratios)
    low, high = stats.t.interval(0.95, 2, loc=logs.mean(), scale=stats.sem(logs))
    assert (found.interval.low, found.interval.high) == pytest.approx((np.exp(low), np.exp(high)))
    assert found.p == pytest.approx(stats.ttest_1samp(logs, 0).pvalue)
    assert math.log(found.detectable) == pytest.approx(statistics.detectable(logs.std(ddof=1), 3))
    assert found.up
    less = statistics.paired_ratio(baseline, method)
    assert not less.up
    assert less.size == pytest.approx(found.size)
    assert statistics.geometric_mean(ratios).mean == pytest.approx(stats.gmean(ratios))
    assert statistics.geometric_mean([]) is None
    assert statistics.paired_ratio({0: 1.0}, {1: 1.0}) is None


def test_only_common_seeds_are_paired():
    method, baseline = {0: 1.0, 1: 2.0, 7: 100.0}, {1: 1.5, 0: 0.9, 3: -5.0}
    found = statistics.paired(method, baseline)
    assert found.interval.n == 2
    assert found.interval.mean == pytest.approx(0.3)
    assert statistics.paired({0: 1.0}, {1: 1.0}) is None


def test_one_pair_and_equal_differences_have_no_test():
    one = statistics.paired({4: 0.9}, {4: 0.8})
    assert one.interval.n == 1
    assert (one.p, one.detectable, one.interval.low) == (None, None, None)
    same = statistics.paired({0: 0.5, 1: 0.6, 2: 0.7}, {0: 0.5, 1: 0.6, 2: 0.7})
    assert (same.interval.mean, same.p, same.detectable) == (0.0, None, None)
    # 0.3 - 0.2 and 0.2 - 0.1 differ in the last bit only: that is no spread
    rounding = statistics.paired({0: 0.3, 1: 0.2}, {0: 0.2, 1: 0.1})
    assert rounding.p is None


def test_holm_by_hand():
    # Holm (1979): sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1, then running maxima
    given_ps = [0.01, 0.04, 0.03, 0.005]
    ones = [Difference(Mean(3, 0.0), p) for p in given_ps]
    corrected = statistics.holm([ones[0], None, *ones[1:], Difference(Mean(1, 0.0))])
    assert corrected[1] is None
    assert corrected[-1].p_holm is None
    ps = [one.p_holm for one in (corrected[0], *corrected[2:5])]
    assert ps == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert [one.stands for one in (corrected[0], *corrected[2:5])] == [True, False, False, True]
    assert statistics.holm([None]) == [None]


@pytest.mark.parametrize("n", [3, 4, 5, 10, 34, 200])
def test_detectable_difference_has_the_power_it_says(n):
    effect = statistics.detectable(2.0, n) / 2.0
    assert TTestPower().power(effect, n, 0.05) == pytest.approx(0.8, abs=1e-9)


def test_detectable_difference_against_published_sizes():
    # Cohen (1988); G*Power: dz = 0.5 needs 34 pairs for power 0.8, 33 do not reach it
    assert statistics.detectable(1.0, 34) < 0.5 < statistics.detectable(1.0, 33)
    assert statistics.detectable(1.0, 1) is None


def test_detectable_difference_of_two_pairs_by_simulation():
    effect = statistics.detectable(1.0, 2)
    draws = np.random.default_rng(0).normal(effect, 1.0, (200_000, 2))
    t = draws.mean(1) / (draws.std(1, ddof=1) / math.sqrt(2))
    assert (np.abs(t) > stats.t.ppf(0.975, 1)).mean() == pytest.approx(0.8, abs=0.005)
