"""Faults of the uncertainty of written sentences: what counts, what is averaged, what is drawn."""

from faults.fault import Fault

SEQUENCES = "tests/metrics/test_sequences.py"
SENTENCES = "tests/applications/text/test_uncertainty.py"
TRANSLATIONS = "tests/applications/nmt/test_uncertainty.py"

FAULTS = [
    Fault(
        "uncertainty: padding counts among the words",
        "metrics/sequences.py",
        'tf.math.count_nonzero(mask, axis=1, dtype="int32")',
        'tf.math.count_nonzero(tf.ones_like(mask), axis=1, dtype="int32")',
        (SEQUENCES,),
        "padding",
    ),
    Fault(
        "uncertainty: padding has an entropy",
        "metrics/sequences.py",
        "entropy = tf.where(mask, entropy_of(total / num_draws), 0.0)",
        "entropy = entropy_of(total / num_draws)",
        (SEQUENCES,),
        "padding",
    ),
    Fault(
        "uncertainty: the mean over words in the place of the mean over draws",
        "metrics/sequences.py",
        "entropy - entropies / num_draws",
        'entropy - entropies / tf.cast(tf.shape(targets)[1], "float32")',
        (SEQUENCES,),
        "enumeration",
    ),
    Fault(
        "uncertainty: the mean of the log-likelihoods for the likelihood of the mean",
        "metrics/sequences.py",
        "predictive = predictive_log_likelihood(of_sequences)",
        "predictive = tf.reduce_mean(of_sequences, axis=0)",
        (SEQUENCES,),
        "enumeration",
    ),
    Fault(
        "uncertainty: the end of a sentence is left out",
        "applications/text/uncertainty.py",
        "counted = tf.not_equal(target, PAD)",
        "counted = tf.greater(target, 3)",
        (SENTENCES,),
        "read_again",
    ),
    Fault(
        "uncertainty: all draws share their noise",
        "applications/text/uncertainty.py",
        "noise.drawn_from(random.fold_in(seed, number))",
        "noise.drawn_from(seed)",
        (TRANSLATIONS,),
        "noise_of_whole",
    ),
    Fault(
        "uncertainty: a word is read after itself",
        "applications/text/uncertainty.py",
        "target[:, :-1]], axis=1)",
        "target[:, 1:]], axis=1)",
        (SENTENCES,),
        "read_again",
    ),
    Fault(
        "uncertainty: the least certain come first",
        "applications/text/coverage.py",
        'np.argsort(x[random[0]], kind="stable")',
        'np.argsort(-x[random[0]], kind="stable")',
        (SENTENCES,),
        "most_certain",
    ),
    Fault(
        "uncertainty: a long sentence is an uncertain one",
        "applications/text/coverage.py",
        '-column("log_likelihood") / column("num_words")',
        '-column("log_likelihood")',
        (SENTENCES,),
        "most_certain",
    ),
]
