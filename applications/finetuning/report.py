"""Report task metrics, calibration and uncertainty of a fine-tuned model.

Shapes: N examples, C classes, S samples.
"""

import dataclasses

import numpy as np
import tensorflow as tf

import keras_vattn
from applications.common import uncertainty
from applications.common.errors import InputError
from applications.common.methods import Uncertainty
from applications.common.option_values import first_value
from applications.common.papers import with_paper
from applications.common.predictor import Predictor
from applications.common.shown import Shown, random_rows, sample_lines, verdict
from applications.common.tables import Column, out_of, title_from
from applications.finetuning import data, spans
from applications.finetuning.model import MODELS
from applications.finetuning.options import TASKS
from applications.finetuning.serve import logits_of, predicted_spans
from keras_vattn import metrics

# Number of examples in report.txt and in report.html.
NUM_SHOWN, NUM_SAMPLES = 5, 20
_TASK, _DRAWS = "report.task", "report.draws"
COLUMNS = (
    Column("Matthews", f"{_TASK}.matthews"),
    Column("accuracy (%)", f"{_TASK}.accuracy", 1, 100.0),
    Column("Pearson", f"{_TASK}.pearson"),
    Column("Spearman", f"{_TASK}.spearman"),
    Column("exact match (%)", f"{_TASK}.exact", 1, 100.0),
    Column("F1 (%)", f"{_TASK}.f1", 1, 100.0),
    Column("NLL (nats)", "report.nll"),
    Column("ECE", "report.ece"),
    Column("Brier", "report.brier"),
    Column("Matthews, draws", f"{_DRAWS}.task.matthews"),
    Column("accuracy, draws (%)", f"{_DRAWS}.task.accuracy", 1, 100.0),
    Column("Pearson, draws", f"{_DRAWS}.task.pearson"),
    Column("NLL, draws", f"{_DRAWS}.nll"),
    Column("ECE, draws", f"{_DRAWS}.ece"),
    Column("PAvPU, draws", f"{_DRAWS}.pavpu"),
    Column("sd of a score", f"{_DRAWS}.sd"),
    Column("gradient of the likelihood", "report.gradients.likelihood", differs=False),
    Column("gradient of the KL", lambda record: f"{record['report']['gradients']['kl']:.1e}", differs=False),
    Column("s/step", "step_seconds", differs=False),
    Column("steps", "steps", 0, differs=False),
)


def evaluate(run, part, evaluation=None):
    """Return a report on an encoded split, and a dictionary with the predictions."""
    kind = TASKS[run.options.texts.task].kind
    report = {"num_examples": len(part.part), "gradients": gradient_norms(run, part)}
    if kind == "span":
        answers = predicted_spans(run, part)
        return report | {"task": spans.figures(answers, part.part)}, {"part": part, "answers": answers}
    num_draws, draws = first_value("num_draws", evaluation, run.options.reports), None
    predicting = predictor(run, part)
    if num_draws and predicting.drawn is not None:
        draws = predicting.draws(num_draws, "attention")
    outputs, spread = np.concatenate(logits_of(run, part)), None
    if kind == "score":
        answers, report["task"] = [f"{score:.3f}" for score in outputs], score_figures(part.targets, outputs)
        if draws is not None:
            spread = draws.std(axis=0)
            figures = {"task": score_figures(part.targets, draws.mean(axis=0)), "sd": float(spread.mean())}
            report["draws"] = {"num_draws": len(draws), **figures}
    else:
        probabilities = tf.nn.softmax(outputs).numpy()
        answers = [run.codec.labels[index] for index in probabilities.argmax(axis=1)]
        report |= class_report(part.targets, probabilities[None])
        if draws is not None:
            spread = metrics.mutual_information(draws)
            figures = {"pavpu": metrics.pavpu(draws, part.targets).pavpu, **uncertainty.means(draws)}
            report["draws"] = {"num_draws": len(draws), **class_report(part.targets, draws), **figures}
    return report, {"part": part, "answers": answers, "spread": spread}


def predictor(run, part, corruption=0.0):
    """Return a `Predictor` of class probabilities or scores for the encoded split `part`.

    `corruption` is the fraction of words to replace with random words of the split.
    """
    model, options = run.models.training, run.options
    if corruption:
        part = data.encode(options, run.codec, with_other_words(part.part, corruption))
    return Predictor(
        part.targets,
        part.batches(options),
        model,
        lambda outputs: outputs if run.codec.labels is None else tf.nn.softmax(outputs).numpy(),
        drawn=model if keras_vattn.stochastic_layers(model) else None,
        drops=options.backbone.drops,
        max_rows=8 * options.fit.batch_size,
    )


def with_other_words(texts, fraction):
    """Return `Texts` whose words are replaced, with probability `fraction`, by random words."""
    generator = np.random.default_rng(0)
    words = np.array([word for column in texts.columns for text in column for word in text.split()])

    def corrupted(text):
        own_words = np.array(text.split())
        replaced = generator.random(len(own_words)) < fraction
        return " ".join(np.where(replaced, generator.choice(words, len(own_words)), own_words))

    columns = [column and list(map(corrupted, column)) for column in (texts.firsts, texts.seconds)]
    return data.Texts(*columns, texts.labels)


def other_texts(options, path, codec=None):
    """Read the texts of a file and give all of them the same label. The labels in the file are ignored."""
    texts = data.read_examples(path, options.texts)
    return dataclasses.replace(texts, labels=[codec and codec.labels[0]] * len(texts))


def require_classes(options):
    if TASKS[options.texts.task].kind != "classes":
        raise InputError(f"The uncertainty table requires a task with classes. Received: --task {options.texts.task}")


def class_report(labels, draws):
    """Return metrics of the mean of sampled predictions (S, N, C), for the correct classes `labels` (N,)."""
    task = class_figures(labels, draws.mean(axis=0).argmax(axis=1))
    return {"task": task, **uncertainty.calibration(draws, labels)}


def class_figures(labels, predicted):
    """Return the accuracy and the Matthews correlation. For two classes, add the F1 of the second class."""
    import sklearn.metrics

    figures = {"accuracy": float(np.mean(labels == predicted))}
    # For a single class, scikit-learn would warn that the correlation is undefined.
    is_defined = len(np.union1d(labels, predicted)) > 1
    figures["matthews"] = float(sklearn.metrics.matthews_corrcoef(labels, predicted)) if is_defined else 0.0
    if max(labels.max(), predicted.max()) < 2:
        figures["f1"] = float(sklearn.metrics.f1_score(labels, predicted, zero_division=0.0))
    return figures


def score_figures(targets, scores):
    """Return the correlations of scores with human scores, or 0 for constant scores."""
    import scipy.stats

    if not np.ptp(scores) or not np.ptp(targets):
        return {"pearson": 0.0, "spearman": 0.0}
    correlations = {"pearson": scipy.stats.pearsonr, "spearman": scipy.stats.spearmanr}
    return {name: float(correlation(targets, scores).statistic) for name, correlation in correlations.items()}


def gradient_norms(run, part):
    """Return the gradient norms of the log-likelihood and of the KL, for the first batch of a split."""
    inputs, targets = next(iter(part.batches(run.options)))
    kind = TASKS[run.options.texts.task].kind
    log_likelihood = {
        "score": lambda outputs: -tf.square(outputs - targets),
        "span": lambda outputs: -sum(spans.span_losses(targets, outputs)),
        "classes": lambda outputs: -tf.nn.sparse_softmax_cross_entropy_with_logits(targets, outputs),
    }[kind]
    return uncertainty.gradient_norms(run.models.training, inputs, log_likelihood, run.options.backbone.drops)


def files(outputs):
    part, answers = outputs["part"].part, outputs["answers"]
    if isinstance(part, spans.Questions):
        rows = zip(part.ids, part.questions, answers, strict=True)
        return {"answers": ["\t".join(" ".join(cell.split()) for cell in row) for row in rows]}
    rows = zip(*part.columns, map(str, part.labels), answers, strict=True)
    return {"answers": list(map("\t".join, rows))}


def heading(record):
    report = record["report"]
    draws = f"; {report['draws']['num_draws']} draws of the attention" if "draws" in report else ""
    return f"{report['num_examples']} {record['split']} examples{draws}"


def example_of(part):
    texts = part.part
    if isinstance(texts, spans.Questions):
        return f"{texts.questions[0]}\t{' '.join(texts.contexts[0].split())}"
    return "\t".join(column[0] for column in texts.columns)


def summary(report):
    task, count, draws = report["task"], report["num_examples"], report.get("draws")
    if "pearson" in task:
        return [f"Predicted and correct scores of {count:,} examples correlate, Pearson {task['pearson']:.3f}."]
    if "exact" in task:
        return [f"{out_of(task['exact'], count)} answers are right; F1 {100 * task['f1']:.1f}%."]
    lines = [f"{out_of(task['accuracy'], count)} examples are right."]
    if draws:
        right = out_of(draws["task"]["accuracy"], count)
        nats = f"NLL {draws['nll']:.3f} nats (without draws: {report['nll']:.3f})"
        lines.append(f"With {draws['num_draws']} draws: {right} right, {nats}.")
    return lines


def shown(run, part, outputs):
    part, answers, spread = part.part, outputs["answers"], outputs.get("spread")
    samples = []
    for row in random_rows(len(answers), NUM_SAMPLES):
        if isinstance(part, spans.Questions):
            is_right = bool(spans.figures([answers[row]], part.rows([row]))["exact"])
            sample = [("question", part.questions[row]), ("answer", answers[row])]
            label = " or ".join(dict.fromkeys(text for text, _ in part.answers[row])) or "no answer"
        else:
            label = str(part.labels[row])
            is_right = None if run.codec.labels is None else answers[row] == label
            sample = [("text", column[row]) for column in part.columns]
            sample += [("label", label), ("predicted", answers[row])]
            sample += [] if spread is None else [("unsure", f"{spread[row]:.3f}")]
        sample += [] if is_right is None else [verdict("" if is_right else f"{label} is right")]
        samples.append(sample)
    return Shown(samples)


def report(run, part, record, outputs, shown):
    return sample_lines(shown.samples, NUM_SHOWN)


# Metrics of tasks without accuracy in Table 5 of Fan et al. 2020.
_OF_TASKS = {"cola": ("matthews",), "sts": ("pearson",), "squad1": ("exact", "f1"), "squad2": ("exact", "f1")}
_SHORT = {"exact": " EM", "f1": " F1"}


def fan(comparison):
    """Return a list with Table 5 of Fan et al. 2020 and our results. For custom tasks the list is empty."""
    task = comparison.planned[0].options.texts.task
    if TASKS[task].columns[0] == "text":
        return []
    columns = [
        Column(task + _SHORT.get(name, ""), f"{_TASK}.{name}", 2, 100.0) for name in _OF_TASKS.get(task, ("accuracy",))
    ]
    title = "Table 5 of Fan et al. 2020"
    return [with_paper(title, "fan_5", columns, comparison.records, first_of=lambda x: (title_from(x, MODELS.get),))]


LAYOUTS = {
    "fan": fan,
    "uncertainty": Uncertainty(predictor, other_texts, corruption=0.3, refuse=require_classes),
}
