"""Fine-tune a pretrained transformer."""

import keras
import tensorflow as tf

from applications.common.errors import InputError
from applications.common.training import TrainingRun
from applications.finetuning import data, pretraining
from applications.finetuning.options import PROGRAM, TASKS
from applications.finetuning.spans import span_losses
from applications.finetuning.tokens import TextEncoder
from applications.finetuning.weights import backbone_of, tokenizer_of
from keras_vattn.conversion import original_weights


def train(options):
    """Train a model, report on held-out data, and write samples, pictures and the SavedModel."""
    run = TrainingRun(PROGRAM, options)
    train, valid = run.read(codec_of)
    network = run.build()
    # The tiny transformer is pretrained only briefly, so it needs a larger learning rate.
    default_rate = 5e-4 if options.backbone.weights is None else 3e-5
    run.schedule(train.num_batches(options.fit.batch_size), options.fit.learning_rate or default_rate)
    if run.is_new:
        set_pretrained_weights(run)
    run.open()
    with run.scope():
        network.compile(run.optimizer(), jit_compile=options.fit.jit_compile, **objective(options))
    run.fit(lambda epoch: train.batches(options, epoch), valid.batches(options))
    run.finish()


def codec_of(options, train):
    """Return the `Codec`. Its class names are the labels of the training examples."""
    path, dropout, max_length = options.backbone.weights, options.backbone.backbone_dropout, options.texts.max_length
    if path is None:
        tokenizer, backbone = pretraining.tokenizer(), pretraining.new_backbone(dropout)
    else:
        tokenizer, backbone = tokenizer_of(path), backbone_of(path, load_weights=False, dropout=dropout)
    if max_length > backbone.max_sequence_length:
        longest = backbone.max_sequence_length
        raise InputError(f"--max-length: this transformer reads at most {longest} tokens. Received: {max_length}")
    kind = TASKS[options.texts.task].kind
    labels = sorted(set(train.labels)) if kind == "classes" else None
    pairs = kind == "span" or train.seconds is not None
    return data.Codec(TextEncoder(tokenizer, max_length), labels, keras.saving.serialize_keras_object(backbone), pairs)


def set_pretrained_weights(run):
    """Load the weights in the folder `--weights`, or pretrain the tiny transformer."""
    options = run.options.backbone
    if options.weights is None:
        weights = pretraining.pretrained_weights(options.pretraining_steps)
        print(f"pretrained: {options.pretraining_steps} steps of predicting masked words", flush=True)
        # The pretraining has changed Keras's seed.
        keras.utils.set_random_seed(run.options.run.seed)
    else:
        weights = backbone_of(options.weights, dropout=options.backbone_dropout).get_weights()
        print(f"weights of {options.weights}", flush=True)
    # `original_weights` has the order of the pretrained model, and no weights of priors.
    for target, weight in zip(original_weights(run.models.backbone), weights, strict=True):
        target.assign(weight)


def objective(options):
    """Return the loss and, except for spans, the metrics of a task, as arguments of `compile`."""
    kind = TASKS[options.texts.task].kind
    if kind == "score":
        return {"loss": keras.losses.MeanSquaredError(), "metrics": [keras.metrics.MeanSquaredError("mse")]}
    if kind == "span":
        return {"loss": lambda targets, logits: sum(span_losses(tf.cast(targets, "int32"), logits)) / 2.0}
    return {
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "metrics": [
            keras.metrics.SparseCategoricalAccuracy("accuracy"),
            keras.metrics.SparseCategoricalCrossentropy("nll", from_logits=True),
        ],
    }
