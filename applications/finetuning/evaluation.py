"""Reports of a fine-tuned model: the figures of its task, calibration, uncertainty.

Shapes: N examples, C classes, S draws.
"""

import numpy as np
import tensorflow as tf

import keras_vattn
from applications.common import uncertainty
from applications.common.progress import progress
from applications.finetuning import spans
from applications.finetuning.options import TASKS
from keras_vattn import metrics

# Seed of draws: reports of equal runs are equal.
_SEED = 0
# Tokens of an answer.
MAX_ANSWER_LENGTH = 30


def evaluate(run, part, num_draws=None):
    """Return everything reported about an encoded part, and what was predicted."""
    num_draws = run.options.reports.num_draws if num_draws is None else num_draws
    task = TASKS[run.options.texts.task]
    report = {"num_examples": len(part.part), "gradients": gradient_norms(run, part)}
    if task.kind == "span":
        answers = predicted_spans(run, part)
        return report | {"task": spans.figures(answers, part.part)}, {"part": part, "answers": answers}
    outputs = logits_of(run, part)
    predict = predicted_scores if task.kind == "score" else predicted_classes
    return predict(run, part, outputs, report, draws_of(run, part, num_draws))


def logits_of(run, part):
    """Return the outputs for a part, at the mean of the attention."""
    model, found = run.models.training, []
    predict = tf.function(lambda inputs: model(inputs, training=False), reduce_retracing=True)
    for inputs, _ in progress(part.batches(run.options), "predicting"):
        found.append(predict(inputs).numpy())
    return found if TASKS[run.options.texts.task].kind == "span" else np.concatenate(found)


def draws_of(run, part, num_draws):
    """Return draws (S, N, ...) of the outputs, `None` of a model that draws nothing."""
    if not num_draws or not keras_vattn.stochastic_layers(run.models.training):
        return None
    return keras_vattn.posterior_predictive(
        run.models.training, part.batches(run.options), num_draws, seed=_SEED, max_rows=8 * run.options.fit.batch_size
    )


def predicted_classes(run, part, logits, report, draws):
    labels, probabilities = part.targets, tf.nn.softmax(logits).numpy()
    best = probabilities.argmax(axis=1)
    report |= {"task": class_figures(labels, best), **uncertainty.calibration(probabilities[None], labels)}
    outputs = {"part": part, "answers": [run.codec.labels[each] for each in best]}
    if draws is not None:
        draws = tf.nn.softmax(draws).numpy()
        tested = metrics.pavpu(draws, labels)
        report["draws"] = {
            "num_draws": len(draws),
            "task": class_figures(labels, draws.mean(axis=0).argmax(axis=1)),
            "pavpu": tested.pavpu,
            **uncertainty.means(draws),
            **uncertainty.calibration(draws, labels),
        }
        outputs["unknown"] = metrics.mutual_information(draws)
    return report, outputs


def class_figures(labels, predicted):
    """Return what GLUE reports of classes: the F1 is that of the second one."""
    import sklearn.metrics

    found = {"accuracy": float(np.mean(labels == predicted))}
    # Of one class alone there is no correlation, and scikit-learn warns.
    several = len(np.union1d(labels, predicted)) > 1
    found["matthews"] = float(sklearn.metrics.matthews_corrcoef(labels, predicted)) if several else 0.0
    if max(labels.max(), predicted.max()) < 2:
        found["f1"] = float(sklearn.metrics.f1_score(labels, predicted, zero_division=0.0))
    return found


def predicted_scores(run, part, scores, report, draws):
    targets = part.targets
    report |= {"task": score_figures(targets, scores)}
    outputs = {"part": part, "answers": [f"{each:.3f}" for each in scores]}
    if draws is not None:
        mean, deviation = draws.mean(axis=0), draws.std(axis=0)
        report["draws"] = {
            "num_draws": len(draws),
            "task": score_figures(targets, mean),
            "sd": float(deviation.mean()),
            # Does the model know where it is far off?
            "error_correlation": score_figures(np.abs(targets - mean), deviation)["spearman"],
        }
        outputs["unknown"] = deviation
    return report, outputs


def score_figures(targets, scores):
    """Return the correlations with the scores that people gave; 0 for scores that are all the same."""
    import scipy.stats

    found = {"pearson": 0.0, "spearman": 0.0, "rmse": float(np.sqrt(np.mean((targets - scores) ** 2)))}
    if np.ptp(scores) and np.ptp(targets):
        found["pearson"] = float(scipy.stats.pearsonr(targets, scores).statistic)
        found["spearman"] = float(scipy.stats.spearmanr(targets, scores).statistic)
    return found


def predicted_spans(run, part):
    """Return the answer to each question, empty for none."""
    scores = []
    for logits in logits_of(run, part):
        scores += list(tf.nn.log_softmax(logits, axis=1).numpy())
    return spans.best_spans(part.windows, part.part, scores, MAX_ANSWER_LENGTH, run.options.texts.task == "squad2")


def gradient_norms(run, part):
    """Return the norms of the gradients of the log-likelihood and of the KL, of one batch as in training."""
    inputs, targets = next(iter(part.batches(run.options)))
    kind = TASKS[run.options.texts.task].kind

    def log_likelihood(outputs):
        if kind == "score":
            return -tf.square(outputs - targets)
        if kind == "span":
            return -sum(span_losses(targets, outputs))
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(targets, outputs)

    given = run.options.backbone
    drops = max(given.backbone_dropout, given.classifier_dropout) > 0
    return uncertainty.gradient_norms(run.models.training, inputs, log_likelihood, drops)


def span_losses(targets, logits):
    """Return the cross-entropies (B,) of the first and of the last token of (B, 2) in logits (B, L, 2)."""
    return [tf.nn.sparse_softmax_cross_entropy_with_logits(targets[:, end], logits[:, :, end]) for end in (0, 1)]
