"""Fine-tuning of a pretrained transformer."""

import keras
import tensorflow as tf

from applications.common.errors import InputError
from applications.common.training import TrainingRun
from applications.finetuning import data, model, pretraining
from applications.finetuning.application import APPLICATION
from applications.finetuning.evaluation import span_losses
from applications.finetuning.options import TASKS
from applications.finetuning.tokens import TextEncoder
from applications.finetuning.weights import backbone_of, tokenizer_of


def train(options):
    """Train a model, report on held-out data, write samples, pictures and the SavedModel."""
    run = TrainingRun(APPLICATION, options)
    train, valid = run.read(codec_of)
    network = run.build()
    run.schedule(train.num_batches(options.fit.batch_size), learning_rate(options))
    if run.is_new:
        set_pretrained_weights(run)
    run.open()
    with run.scope():
        network.compile(run.optimizer(), jit_compile=options.fit.jit_compile, **objective(options))
    for stage in run.stages():
        batches = train.batches(options, stage.epoch).skip(stage.step)
        network.fit(batches, validation_data=valid.batches(options), **stage.fit)
    run.finish()


def learning_rate(options):
    """Return the learning rate that is asked for, or one for weights of a file or of a short pretraining."""
    if options.fit.learning_rate is not None:
        return options.fit.learning_rate
    return 5e-4 if options.backbone.weights is None else 3e-5


def codec_of(options, train):
    """Return the tokenizer and the transformer that the options name, and the labels of the training part."""
    backbone_options = options.backbone
    if backbone_options.weights is None:
        tokenizer, backbone = pretraining.tokenizer(), pretraining.new_backbone(backbone_options.backbone_dropout)
    else:
        tokenizer = tokenizer_of(backbone_options.weights)
        dropout = backbone_options.backbone_dropout
        backbone = backbone_of(backbone_options.weights, load_weights=False, dropout=dropout)
    longest = backbone.max_sequence_length
    if options.texts.max_length > longest:
        raise InputError(f"--max-length: the transformer reads {longest}. Received: {options.texts.max_length}")
    kind = TASKS[options.texts.task].kind
    labels = sorted(set(train.labels)) if kind == "classes" else None
    pairs = kind == "span" or train.seconds is not None
    config = keras.saving.serialize_keras_object(backbone)
    return data.Codec(TextEncoder(tokenizer, options.texts.max_length), labels, config, pairs)


def set_pretrained_weights(run):
    """Give the transformer the weights of a file, or pretrain it for a few steps."""
    options = run.options.backbone
    if options.weights is None:
        weights, loss = pretraining.pretrained_weights(options.pretraining_steps)
        print(f"pretrained: {loss:.2f} nats a masked word", flush=True)
        # Pretraining has drawn: the training depends on the seed alone.
        keras.utils.set_random_seed(run.options.run.seed)
    else:
        weights = backbone_of(options.weights, dropout=options.backbone_dropout).get_weights()
        print(f"weights of {options.weights}", flush=True)
    model.initialize(run.models, weights)


def objective(options):
    """Return the loss and the metrics of a task, arguments of `compile`."""
    kind = TASKS[options.texts.task].kind
    if kind == "score":
        return {"loss": keras.losses.MeanSquaredError(), "metrics": [keras.metrics.MeanSquaredError("mse")]}
    if kind == "span":
        return {"loss": lambda targets, logits: sum(span_losses(tf.cast(targets, "int32"), logits)) / 2.0}
    # The loss has the KL in it.
    return {
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "metrics": [
            keras.metrics.SparseCategoricalAccuracy("accuracy"),
            keras.metrics.SparseCategoricalCrossentropy("nll", from_logits=True),
        ],
    }
