"""Reports of a trained model: likelihood, the VQA metric, uncertainty, what the attention looks at.

Shapes: N questions, V answers, R regions, M draws.
"""

import numpy as np
import tensorflow as tf

import keras_vattn
from applications.common import uncertainty as uncertainty_of
from applications.common.progress import progress
from applications.vision import scenes
from applications.vqa.answers import vqa_accuracy, vqa_accuracy_of_others
from keras_vattn import metrics

TYPES = ("yes/no", "number", "other")
# Questions whose attention weights are drawn for their standard deviation.
NUM_STATISTICS = 32
# p below which PAvPU takes a prediction for certain.
SIGNIFICANCE = 0.05
# Seeds of draws and noise: reports of equal runs are equal.
_SEED = 0


def evaluate(run, part, num_draws=None, feature_noise=None):
    """Return everything reported about a part, and what was predicted."""
    reports = run.options.reports
    num_draws = reports.num_draws if num_draws is None else num_draws
    feature_noise = reports.feature_noise if feature_noise is None else feature_noise
    report, outputs = predicted(run, part)
    report |= {"gradients": gradient_norms(run, part), "weights_sd": weights_deviation(run, part)}
    report["uncertainty"], outputs["p_values"] = uncertainty(run, part, num_draws)
    if feature_noise:
        report["noisy"], _ = predicted(run, part, feature_noise)
        report["noisy"]["uncertainty"], _ = uncertainty(run, part, num_draws, feature_noise)
        report["noisy"]["variance"] = feature_noise
    return report, outputs


def seen(run, part, feature_noise=0.0):
    """Return the questions of a part in their order, batches (inputs,), perhaps with noise on the regions."""
    batches = part.batches(run.options, answered=False)
    if feature_noise:
        scale = np.sqrt(feature_noise) * (run.codec.regions.scale if run.options.reports.noise_scale else 1.0)
        width = run.codec.regions.width

        def noisy(number, batch):
            (inputs,) = batch
            regions = inputs["regions"]
            noise = scale * tf.random.stateless_normal(tf.shape(regions[..., :width]), tf.stack([_SEED, number]))
            # Boxes are no features, and padding stays what it is.
            noise = tf.pad(noise, [[0, 0], [0, 0], [0, regions.shape[-1] - width]])
            there = tf.sequence_mask(inputs["num_regions"], tf.shape(regions)[1])[..., None]
            return (inputs | {"regions": tf.where(there, regions + noise, regions)},)

        batches = batches.enumerate().map(lambda number, batch: noisy(tf.cast(number, tf.int32), batch))
    return batches


def predicted(run, part, feature_noise=0.0, title="answering"):
    """Return the figures of the exact predictions, and the predictions: of each question the answer, its probability,
    and the weights of the regions."""
    function, batches = run.models.predict, seen(run, part, feature_noise)
    nats, best, probabilities, weights, start = [], [], [], [], 0
    for (inputs,) in batches if title is None else progress(batches, title):
        found = {name: x.numpy() for name, x in function(inputs).items()}
        votes = part.votes.of_answers(slice(start, start + len(found["weights"])))
        start += len(votes)
        with np.errstate(invalid="ignore"):
            nats.append(-np.sum(votes * found["log_probabilities"], axis=1) / votes.sum(axis=1))
        best.append(found["log_probabilities"].argmax(axis=1))
        probabilities.append(np.exp(found["log_probabilities"].max(axis=1)))
        weights.append(found["weights"])
    nats, best, probabilities, weights = (np.concatenate(x) for x in (nats, best, probabilities, weights))
    answers = [part.codec.answers[index] for index in best]
    positive = np.where(weights > 0, weights, 1.0)
    report = {
        "num_questions": len(part),
        "nll": float(nats[part.votes.usable].mean()),
        "num_nll": int(part.votes.usable.sum()),
        "accuracy": by_type(part, [vqa_accuracy(*row) for row in zip(answers, part.questions.votes, strict=True)]),
        "accuracy_of_others": by_type(
            part, [vqa_accuracy_of_others(*row) for row in zip(answers, part.questions.votes, strict=True)]
        ),
        "entropy": float(-np.sum(weights * np.log(positive), axis=1).mean()),
    }
    cells = part.questions.cells
    if cells is not None and scenes.are_cells(part.codec.regions):
        known = np.flatnonzero(np.array(cells) >= 0)
        if len(known):
            report["pointing"] = float(np.mean(weights[known].argmax(axis=1) == np.array(cells)[known]))
            report["pointing_chance"] = 1.0 / weights.shape[1]
    return report, {"answers": answers, "probabilities": probabilities, "weights": weights}


def by_type(part, values):
    """Return the means over all questions, and over those of each answer type that there is."""
    values, types = np.array(values), np.array(part.questions.types)
    found = {"all": float(values.mean())}
    return found | {name: float(values[types == name].mean()) for name in TYPES if np.any(types == name)}


def uncertainty(run, part, num_draws, feature_noise=0.0):
    """Return the uncertainty metrics under draws of dropout, of the attention, and of both, as far as the model has
    them, on a sample of the questions; and p-values of the test of the two best answers under the last of these, a
    dictionary from the rows of the sample.

    Prediction by the mean of the draws. Only figures of equal numbers of draws compare.
    """
    models, options, found, p_values = run.models, run.options.reports, {}, {}
    if num_draws < 2:
        return found, p_values
    kinds = {}
    if run.options.dropout:
        kinds["dropout"] = (models.prediction, {"dropout": True, "posterior": False})
    if models.drawn is not None:
        kinds["attention"] = (models.drawn, {})
    if len(kinds) == 2:
        kinds["both"] = (models.drawn, {"dropout": True})
    sampled, part = part.sample(options.max_uncertain)
    votes, usable = part.votes.of_answers(slice(None)), part.votes.usable
    accuracies, labels = np.minimum(votes / 3.0, 1.0), votes.argmax(axis=1)
    types = np.array(part.questions.types)
    for name, (model, draws_of) in kinds.items():
        batches = seen(run, part, feature_noise)
        draws = keras_vattn.posterior_predictive(model, batches, num_draws, seed=_SEED, **draws_of)
        draws = np.exp(draws["log_probabilities"])
        tested = metrics.pavpu(draws, accuracies=accuracies, significance=SIGNIFICANCE)
        p_values, known = dict(zip(sampled, tested.p_values.tolist(), strict=True)), draws[:, usable]
        pavpu = {"all": tested.pavpu}
        for kind in TYPES:
            if np.any(types == kind):
                rows = types == kind
                some = metrics.pavpu(draws[:, rows], accuracies=accuracies[rows], significance=SIGNIFICANCE)
                pavpu[kind] = some.pavpu
        found[name] = {
            "num_draws": num_draws,
            "significance": SIGNIFICANCE,
            "num_questions": len(part),
            "pavpu": pavpu,
            "certain": float(tested.certain.mean()),
            **uncertainty_of.means(draws),
            **uncertainty_of.calibration(known, labels[usable]),
        }
    return found, p_values


def gradient_norms(run, part):
    """Return the norms of the gradients of the log-likelihood and of the KL, of one batch as in training."""
    inputs, _ = next(iter(part.batches(run.options, first_epoch=0)))
    # Terms that a gradient of draws needs are there in training alone.
    return uncertainty_of.gradient_norms(run.models.training, inputs, drops=run.options.dropout > 0)


def weights_deviation(run, part):
    """Return the standard deviation of an attention weight over draws, averaged over all that are not masked; `None`
    of weights that are not drawn."""
    if run.models.weights is None or run.models.drawn is None:
        return None
    _, part = part.sample(NUM_STATISTICS)
    total, count = 0.0, 0
    for weights in keras_vattn.posterior_predictive(run.models.weights, seen(run, part), 16, seed=_SEED):
        there = weights.mean(axis=0) > 0
        total += weights.std(axis=0)[there].sum()
        count += there.sum()
    return float(total / count)
