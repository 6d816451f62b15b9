import itertools

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from scipy import stats
from scipy.special import softmax
from sklearn.metrics import brier_score_loss, log_loss

from keras_vattn.metrics import (
    brier_score,
    expected_calibration_error,
    mutual_information,
    negative_log_likelihood,
    pavpu,
    predictive_entropy,
    risk_coverage_area,
)

NUM_DRAWS, NUM_EXAMPLES, NUM_CLASSES = 12, 30, 4
LABELLED = [pavpu, negative_log_likelihood, brier_score, expected_calibration_error, risk_coverage_area]
UNLABELLED = [predictive_entropy, mutual_information]


def random_logits(num_draws=NUM_DRAWS, num_examples=NUM_EXAMPLES, spread=0.5, seed=1, means=1.0):
    generator = np.random.default_rng(seed)
    centre = means * generator.normal(size=(1, num_examples, NUM_CLASSES))
    return centre + spread * generator.normal(size=(num_draws, num_examples, NUM_CLASSES))


@pytest.fixture
def logits():
    return random_logits()


@pytest.fixture
def draws(logits):
    return softmax(logits, axis=-1)


@pytest.fixture
def labels():
    return np.random.default_rng(2).integers(NUM_CLASSES, size=NUM_EXAMPLES)


def top_two(values, draws):
    order = np.argsort(-draws.mean(axis=0), axis=-1)
    return [values[:, np.arange(values.shape[1]), order[:, rank]] for rank in (0, 1)]


def test_negative_log_likelihood(draws, labels):
    expected = log_loss(labels, draws.mean(axis=0), labels=range(NUM_CLASSES))
    assert negative_log_likelihood(draws, labels) == pytest.approx(expected, rel=1e-12)
    single = log_loss(labels, draws[0], labels=range(NUM_CLASSES))
    assert negative_log_likelihood(draws[:1], labels) == pytest.approx(single, rel=1e-12)


def test_an_impossible_label_has_infinite_loss():
    assert negative_log_likelihood([[[1.0, 0.0]]], [1]) == np.inf
    assert negative_log_likelihood([[[1.0, 0.0]], [[0.0, 1.0]]], [1]) == pytest.approx(np.log(2))


def test_brier_score(draws, labels):
    mean = draws.mean(axis=0)
    expected = np.mean(np.sum((mean - np.eye(NUM_CLASSES)[labels]) ** 2, axis=-1))
    assert brier_score(draws, labels) == pytest.approx(expected, rel=1e-12)
    binary = np.stack([mean[:, :2].sum(-1), mean[:, 2:].sum(-1)], axis=-1)
    positive = brier_score_loss(labels >= 2, binary[:, 1])
    assert brier_score(binary[None], (labels >= 2).astype(int)) == pytest.approx(2 * positive, rel=1e-12)
    assert brier_score([[[1.0, 0.0]]], [1]) == 2.0


def binary_draws(*confidences):
    """Return one draw that gives class 0 these probabilities."""
    return np.stack([confidences, 1.0 - np.array(confidences)], axis=-1)[None]


def test_expected_calibration_error_by_hand():
    draws = binary_draws(0.6, 0.7, 0.9, 1.0)
    # Two bins of (0.5, 0.75] and (0.75, 1]: accuracy 1/2 and 1, confidence 0.65 and 0.95.
    assert expected_calibration_error(draws, [0, 1, 0, 0], num_bins=4) == pytest.approx((2 * 0.15 + 2 * 0.05) / 4)
    assert expected_calibration_error(draws, [0, 1, 0, 0], num_bins=1) == pytest.approx(0.8 - 0.75)
    assert expected_calibration_error(draws, [1, 1, 1, 1]) == pytest.approx(0.8)
    assert expected_calibration_error(binary_draws(1.0, 1.0), [0, 0]) == 0.0


def test_a_confidence_on_a_bin_edge_is_in_the_lower_bin():
    # Both confidences are in (0.6, 0.7], although 10 * 0.7 may be rounded up: mean confidence 0.675, accuracy 1/2.
    assert expected_calibration_error(binary_draws(0.65, 0.7), [0, 1], num_bins=10) == pytest.approx(0.175)
    assert expected_calibration_error(binary_draws(0.7, 0.75), [0, 1], num_bins=10) == pytest.approx((0.3 + 0.75) / 2)


def test_the_mean_of_the_draws_is_calibrated_not_each_draw():
    draws = np.concatenate([binary_draws(1.0, 1.0), binary_draws(0.2, 0.2)])  # the mean is 0.6
    assert expected_calibration_error(draws, [0, 1]) == pytest.approx(0.1)


def test_risk_coverage_area_by_hand():
    draws = binary_draws(0.9, 0.8, 0.7, 0.6)
    assert risk_coverage_area(draws, [0, 0, 0, 0]) == 0.0
    assert risk_coverage_area(draws, [0, 0, 0, 1]) == pytest.approx((0 + 0 + 0 + 1 / 4) / 4)
    assert risk_coverage_area(draws, [1, 0, 0, 0]) == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert risk_coverage_area(draws, [1, 0, 0, 0], uncertainty=[4, 1, 2, 3]) == pytest.approx((1 / 4) / 4)


def test_ties_are_averaged_over_their_orders():
    """One of three tied examples is wrong, so the area is a mean: the wrong example may come first, second or third."""
    draws = binary_draws(0.9, 0.8, 0.8, 0.8)
    risks = [[0, 1 / 2, 1 / 3, 1 / 4], [0, 0, 1 / 3, 1 / 4], [0, 0, 0, 1 / 4]]
    for labels in ([0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]):
        assert risk_coverage_area(draws, labels) == pytest.approx(np.mean(risks))
    assert risk_coverage_area(draws, [0, 1, 1, 0], uncertainty=np.ones(4)) == pytest.approx(0.5)


def test_predictive_entropy(draws):
    np.testing.assert_allclose(predictive_entropy(draws), stats.entropy(draws.mean(axis=0), axis=-1), rtol=1e-12)
    assert predictive_entropy(np.full((1, 1, 5), 0.2))[0] == pytest.approx(np.log(5))
    assert predictive_entropy([[[1.0, 0.0]]])[0] == 0.0


def test_mutual_information(draws):
    expected = stats.entropy(draws.mean(axis=0), axis=-1) - stats.entropy(draws, axis=-1).mean(axis=0)
    np.testing.assert_allclose(mutual_information(draws), expected, atol=1e-12)
    certain = [[[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]]]
    np.testing.assert_allclose(mutual_information(certain), [np.log(2), 0.0, 0.0], atol=1e-15)


@pytest.mark.parametrize("num_draws", [2, 3, 20, 500])
@pytest.mark.parametrize("spread", [0.05, 2.0])
def test_p_values_match_scipy(num_draws, spread):
    logits = random_logits(num_draws, spread=spread)
    draws = softmax(logits, axis=-1)
    labels = np.zeros(NUM_EXAMPLES, int)
    welch = stats.ttest_ind(*top_two(draws, draws), equal_var=False).pvalue
    paired = stats.ttest_rel(*top_two(draws, draws)).pvalue
    logit_p_values = stats.ttest_rel(*top_two(logits, draws)).pvalue  # the published code
    log_p_values = stats.ttest_ind(*top_two(np.log(draws), draws), equal_var=False).pvalue
    for options, expected in (
        ({}, welch),
        ({"test": "paired"}, paired),
        ({"test": "paired", "on": "log_probabilities"}, logit_p_values),
        ({"on": "log_probabilities"}, log_p_values),
    ):
        np.testing.assert_allclose(pavpu(draws, labels, **options).p_values, expected, rtol=1e-7, atol=1e-300)


def certain_and_uncertain():
    """Return ten draws of four examples. Class 0 is best, alternately with certainty and by a small margin."""
    noise = 0.2 * np.linspace(-1, 1, 10)
    certain_draws, uncertain_draws = 0.8 + 0.1 * noise, 0.51 + noise
    first = np.stack([certain_draws, uncertain_draws, certain_draws, uncertain_draws], axis=-1)
    return np.stack([first, 1.0 - first], axis=-1)


def test_counts():
    result = pavpu(certain_and_uncertain(), [0, 0, 1, 1])
    assert (result.n_ac, result.n_au, result.n_ic, result.n_iu) == (1.0, 1.0, 1.0, 1.0)
    assert result.pavpu == 0.5
    assert result.certain.tolist() == [True, False, True, False]
    assert result.predictions.tolist() == [0, 0, 0, 0]
    assert result.num_draws == 10
    assert pavpu(certain_and_uncertain(), [0, 1, 0, 1]).pavpu == 1.0
    assert pavpu(certain_and_uncertain(), [1, 0, 1, 0]).pavpu == 0.0


def test_weighted_form():
    result = pavpu(certain_and_uncertain(), accuracies=[1.0, 0.3, 0.6, 0.0])
    counts = (result.n_ac, result.n_au, result.n_ic, result.n_iu)
    np.testing.assert_allclose(counts, (1.0 + 0.6, 0.3 + 0.0, 0.0 + 0.4, 0.7 + 1.0))
    assert result.pavpu == pytest.approx((1.6 + 1.7) / 4)
    every_class = np.stack([[1.0, 0.3, 0.6, 0.0], [0.0, 1.0, 1.0, 0.2]], axis=-1)
    assert pavpu(certain_and_uncertain(), accuracies=every_class).pavpu == result.pavpu


def test_accuracies_of_0_and_1_are_labels(draws, labels):
    one_hot = np.eye(NUM_CLASSES)[labels]
    from_labels, weighted = pavpu(draws, labels), pavpu(draws, accuracies=one_hot)
    assert (from_labels.n_ac, from_labels.n_iu) == (weighted.n_ac, weighted.n_iu)
    np.testing.assert_array_equal(from_labels.certain, weighted.certain)


def test_significance(draws, labels):
    strict, loose = pavpu(draws, labels, significance=1e-6), pavpu(draws, labels, significance=0.5)
    assert strict.certain.sum() < loose.certain.sum()
    np.testing.assert_array_equal(strict.certain, strict.p_values < 1e-6)


@pytest.mark.parametrize("test", ["welch", "paired"])
@pytest.mark.parametrize("on", ["probabilities", "log_probabilities"])
def test_without_variance_different_means_are_certain(test, on):
    """Draws without variance and with different means are certain, even if rounding gives them a small variance."""
    draws = np.tile([[[0.7, 0.2, 0.1], [0.4, 0.4, 0.2], [1.0, 0.0, 0.0]]], (10, 1, 1))
    result = pavpu(draws, [0, 0, 0], test=test, on=on)
    assert result.p_values.tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("test", ["welch", "paired"])
@pytest.mark.parametrize("on", ["probabilities", "log_probabilities"])
def test_p_values_are_never_nan(test, on):
    tiny = 1e-170
    extreme = [
        [[1.0, 0.0], [1.0, tiny], [0.5, 0.5], [1.0, 0.0]],
        [[1.0, 0.0], [1.0, 3 * tiny], [0.5, 0.5], [0.0, 1.0]],
    ]
    p_values = pavpu(extreme, [0, 0, 0, 0], test=test, on=on).p_values
    assert ((p_values >= 0) & (p_values <= 1)).all()
    assert p_values[2:].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("test", ["welch", "paired"])
def test_certainty_grows_with_the_number_of_draws(test):
    """From 3 to 1000 draws of one model, the fraction of certain predictions rises from below 0.2 to above 0.9."""
    draws = softmax(random_logits(1000, 200, spread=1.0), axis=-1)
    labels = np.zeros(200, int)
    shares = [pavpu(draws[:count], labels, test=test).certain.mean() for count in (3, 20, 100, 1000)]
    assert all(first + 0.1 < second for first, second in itertools.pairwise(shares))
    assert shares[0] < 0.2 and shares[-1] > 0.9


@pytest.mark.parametrize("function", LABELLED + UNLABELLED)
def test_draws_must_be_probabilities(function, draws, logits, labels):
    arguments = (labels,) if function in LABELLED else ()
    broken = draws.copy()
    broken[3, 2, 1] = np.nan
    for bad, message in (
        (draws[0], r"shape \(num_samples, N, C\).*Received: draws.shape=\(30, 4\)"),
        (draws[:, :0], r"Received: draws.shape=\(12, 0, 4\)"),
        (draws[..., :1], r"2 classes.*Received: draws.shape=\(12, 30, 1\)"),
        (draws[:0], r"Received: draws.shape=\(0, 30, 4\)"),
        (logits, "not logits.*Received: values from -"),
        (broken, "Received: values from nan"),
        (draws * 1.01, r"sum to 1.*Received: sums from 1\.0"),
    ):
        with pytest.raises(ValueError, match=message):
            function(bad, *arguments)


@pytest.mark.parametrize("function", LABELLED)
def test_labels_must_be_classes(function, draws, labels):
    for bad, message in (
        (labels[:-1], r"Received: labels.shape=\(29,\)"),
        (labels[:, None], r"Received: labels.shape=\(30, 1\)"),
        (labels.astype(float), "Received: .*float64"),
        (labels + 1, r"\[0, 4\).*Received: labels from 1 to 4"),
        (labels - 1, "Received: labels from -1 to 2"),
    ):
        with pytest.raises(ValueError, match=message):
            function(draws, bad)


def test_pavpu_errors(draws, labels):
    for options, message in (
        ({"labels": labels, "test": "z"}, "Received: test='z'"),
        ({"labels": labels, "on": "logits"}, "Received: on='logits'"),
        ({"labels": labels, "significance": 0}, "Received: significance=0"),
        ({"labels": labels, "significance": 5}, "Received: significance=5"),
        ({}, "Received: labels=None, accuracies=None"),
        ({"labels": labels, "accuracies": labels}, "`labels` or `accuracies`"),
        ({"accuracies": np.ones(3)}, r"Received: accuracies.shape=\(3,\)"),
        ({"accuracies": np.full(NUM_EXAMPLES, 1.5)}, "Received: values from 1.5"),
        ({"accuracies": np.full(NUM_EXAMPLES, np.nan)}, "Received: values from nan"),
    ):
        with pytest.raises(ValueError, match=message):
            pavpu(draws, **options)
    with pytest.raises(ValueError, match=r"at least 2 draws.*Received: draws.shape=\(1, 30, 4\)"):
        pavpu(draws[:1], labels)


def test_other_errors(draws, labels):
    with pytest.raises(ValueError, match="Received: num_bins=0"):
        expected_calibration_error(draws, labels, num_bins=0)
    with pytest.raises(ValueError, match=r"Received: uncertainty.shape=\(3,\)"):
        risk_coverage_area(draws, labels, uncertainty=[1, 2, 3])
    with pytest.raises(ValueError, match="1 NaN"):
        risk_coverage_area(draws, labels, uncertainty=[np.nan] + [0.0] * (NUM_EXAMPLES - 1))


@st.composite
def predictions(draw):
    num_draws, num_examples, num_classes = (draw(st.integers(*limits)) for limits in ((2, 6), (1, 6), (2, 5)))
    scale = draw(st.sampled_from([0.0, 1e-8, 1.0, 30.0, 2000.0]))
    generator = np.random.default_rng(draw(st.integers(0, 2**16)))
    logits = scale * generator.normal(size=(num_draws, num_examples, num_classes))
    dtype = draw(st.sampled_from(["float32", "float64"]))
    return softmax(logits, axis=-1).astype(dtype), generator.integers(num_classes, size=num_examples)


@hypothesis.given(
    predictions(), st.sampled_from(["welch", "paired"]), st.sampled_from(["probabilities", "log_probabilities"])
)
@hypothesis.settings(max_examples=60)
def test_bounds(arrays, test, on):
    draws, labels = arrays
    num_examples, num_classes = draws.shape[1:]
    result = pavpu(draws, labels, test=test, on=on)
    assert ((result.p_values >= 0) & (result.p_values <= 1)).all()
    assert 0 <= result.pavpu <= 1
    assert result.n_ac + result.n_au + result.n_ic + result.n_iu == num_examples
    entropy, information = predictive_entropy(draws), mutual_information(draws)
    assert ((information >= 0) & (information <= entropy) & (entropy <= np.log(num_classes) + 1e-12)).all()
    assert negative_log_likelihood(draws, labels) >= 0
    assert 0 <= brier_score(draws, labels) <= 2
    assert 0 <= expected_calibration_error(draws, labels) <= 1
    error_rate = np.mean(draws.astype("float64").mean(axis=0).argmax(axis=-1) != labels)
    assert 0 <= risk_coverage_area(draws, labels) <= 1
    assert risk_coverage_area(draws, labels, np.zeros(num_examples)) == pytest.approx(error_rate, abs=1e-12)


@hypothesis.given(predictions(), st.randoms(use_true_random=False))
@hypothesis.settings(max_examples=30)
def test_the_order_of_draws_and_examples_does_not_matter(arrays, random):
    draws, labels = arrays
    order, examples = list(range(draws.shape[0])), list(range(draws.shape[1]))
    random.shuffle(order)
    random.shuffle(examples)
    shuffled, shuffled_labels = draws[order][:, examples], labels[examples]
    for function in LABELLED[1:]:
        first, second = function(draws, labels), function(shuffled, shuffled_labels)
        assert first == second or first == pytest.approx(second, rel=1e-6, abs=1e-9)
    for function in UNLABELLED:
        np.testing.assert_allclose(function(draws)[examples], function(shuffled), rtol=1e-6, atol=1e-9)
