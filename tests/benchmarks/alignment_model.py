"""The encoder-decoder of every row of the alignment benchmark, started from the same weights."""

import keras
from benchmarks.alignment_data import END, PAD, START
from keras import layers, ops

import keras_vattn

# What a row is trained for; the others draw their context inside the decoder.
OBJECTIVES = {
    "soft": "soft",
    "marginal": "marginal",
    "hard-enumerate": "hard/enumerate",
    "elbo-enumerate": "elbo/enumerate",
    "elbo-sample": "elbo/sample",
}
ROWS = (*OBJECTIVES, "dirichlet", "weibull")
WITH_POSTERIOR = ("elbo-enumerate", "elbo-sample", "dirichlet")
# The kind of the predictive likelihood that a row has.
KINDS = {name: "exact" for name in OBJECTIVES} | {"soft": "plug-in", "dirichlet": "predictive", "weibull": "predictive"}


class Model:
    """The layers of one row, the model that is trained, and the one that predicts, which has no posterior.

    Args:
        row: One of `ROWS`.
        options: The `Options`.
        vocabulary_sizes: Of source and target.
        seed: Of the dropout and the draws.
        steps: Number of training calls an epoch.
    """

    def __init__(self, row, options, vocabulary_sizes, seed, steps):
        self.row, self.options = row, options
        width, units = options.embedding_width, options.units
        embedding = lambda size, name: layers.Embedding(size, width, name=name)  # noqa: E731
        self.source_embedding = embedding(vocabulary_sizes[0], "source_embedding")
        self.target_embedding = embedding(vocabulary_sizes[1], "target_embedding")
        self.source_dropout = layers.Dropout(options.dropout, seed=seed + 1, name="source_dropout")
        self.target_dropout = layers.Dropout(options.dropout, seed=seed + 2, name="target_dropout")
        self.encoder = bidirectional(options.encoder_units, "encoder")
        self.decoder = keras_vattn.AttentionDecoder(
            units, self._attention(seed + 3, steps), feeding="expected", seed=seed + 4, name="decoder"
        )
        # The emission tanh(W [h_t; x_s] + b), split.
        self.query = layers.Dense(units, name="emission_query")
        self.value = layers.Dense(units, use_bias=False, name="emission_value")
        # Shared by the candidates of a query.
        self.hidden_dropout = layers.Dropout(
            options.dropout, noise_shape=(None, None, 1, None), seed=seed + 5, name="hidden_dropout"
        )
        self.words = keras_vattn.TokenLogLikelihood(vocabulary_sizes[1], ignore_class=PAD, name="words")
        if row in WITH_POSTERIOR:
            self.source_reader = bidirectional(options.encoder_units, "posterior_source")
            self.target_reader = bidirectional(options.encoder_units, "posterior_target")
            self.posterior_score = keras_vattn.Bilinear(name="posterior_score")
        self.seed = seed
        inputs = {
            "source": keras.Input((None,), dtype="int32", name="source"),
            "target": keras.Input((None,), dtype="int32", name="target"),
        }
        self.training_model = keras.Model(inputs, self._training_output(inputs))
        self.prediction_model = keras.Model(inputs, self._prediction_outputs(inputs))

    def _attention(self, seed, steps):
        options, score = self.options, keras_vattn.Additive(self.options.units, name="score")
        if self.row == "dirichlet":
            warm_start, annealing = (round(x * steps) for x in (options.warm_start_epochs, options.kl_annealing_epochs))
            schedule = keras_vattn.LinearAnnealing(annealing) if annealing else None
            return keras_vattn.DirichletAttention(
                score, warm_start_steps=warm_start, kl_annealing=schedule, seed=seed, name="attention"
            )
        if self.row == "weibull":
            prior = keras_vattn.GammaPrior(beta=options.weibull_beta)
            return keras_vattn.BayesianAttention(
                "weibull", score, prior, k=options.weibull_k, seed=seed, name="attention"
            )
        return keras_vattn.DeterministicAttention(score, name="attention")

    def _read(self, inputs):
        """Everything that both models have in common: a dictionary."""
        source = self.source_dropout(self.source_embedding(inputs["source"]))
        target = self.target_dropout(self.target_embedding(inputs["target"]))
        words = inputs["target"][:, 1:]
        read = {"words": words, "mask": ops.not_equal(words, PAD), "source_mask": ops.not_equal(inputs["source"], PAD)}
        posterior_logits = None
        if self.row in WITH_POSTERIOR:
            # Row t pairs with the word that step t predicts; the readers share the dropped embeddings.
            queries = self.target_reader(target[:, 1:], mask=read["mask"])
            posterior_logits = self.posterior_score(queries, self.source_reader(source, mask=read["source_mask"]))
        memory = self.encoder(source, mask=read["source_mask"])
        return {**read, "embedded": target[:, :-1], "memory": memory, "posterior_logits": posterior_logits}

    def _decode(self, read, posterior_logits=None):
        return self.decoder(
            read["embedded"],
            read["memory"],
            inputs_mask=read["mask"],
            memory_mask=read["source_mask"],
            posterior_logits=posterior_logits,
            return_attention_scores=True,
            return_logits=True,
        )

    def _hidden(self, query, candidates):
        return self.hidden_dropout(ops.tanh(self.query(query)[:, :, None] + candidates))

    def _bound(self, objective, read, decoded, posterior_logits=None, name=None):
        """The value of each word under an objective, from the logits that the decoder has computed."""
        objective = keras_vattn.LatentObjective(objective)
        latent = keras_vattn.CategoricalAttention(objective=objective, seed=self.seed + 6, name=name)(
            decoded["query"],
            self.value(read["memory"]),
            query_mask=read["mask"],
            value_mask=read["source_mask"],
            posterior_logits=posterior_logits,
            logits=decoded["logits"],
        )
        log_likelihood = self.words(self._hidden(decoded["query"], latent["candidates"]), read["words"])
        value = keras_vattn.LatentLogLikelihood(objective)
        return value(log_likelihood, latent["log_prior"], latent.get("log_posterior"))

    def _of_context(self, read, decoded):
        """The value of each word given the one context that the decoder has drawn, or its mean."""
        candidates = self.value(decoded["context"])[:, :, None]
        return self.words(self._hidden(decoded["query"], candidates), read["words"])[..., 0]

    def _training_output(self, inputs):
        read = self._read(inputs)
        if self.row in OBJECTIVES:
            return self._bound(OBJECTIVES[self.row], read, self._decode(read), read["posterior_logits"], "latent")
        return self._of_context(read, self._decode(read, read["posterior_logits"]))

    def _prediction_outputs(self, inputs):
        read = self._read(inputs)
        decoded = self._decode(read)
        outputs = {"weights": decoded["weights"], "plug-in": self._of_context(read, decoded)}
        if self.row in OBJECTIVES:
            outputs["exact"] = self._bound("marginal", read, decoded)
        return outputs

    def decode_greedily(self, source, max_length):
        """Ids (B, max_length) of the most probable word, symbol by symbol, under the marginal or the mean weights."""
        mask = ops.not_equal(source, PAD)
        memory = self.encoder(self.source_embedding(source), mask=mask)
        prepared, value = self.decoder.prepare_memory(memory, mask), self.value(memory)
        batch_size = ops.shape(source)[0]
        objective = "soft" if KINDS[self.row] != "exact" else "marginal"
        attention = keras_vattn.CategoricalAttention(objective=objective)

        def step(ids, state, position):
            decoded, state = self.decoder.step(self.target_embedding(ids), state, prepared)
            query = decoded["query"][:, None]
            latent = attention(query, value, value_mask=mask, logits=decoded["logits"][:, None])
            hidden = self._hidden(query, latent["candidates"])
            return self.words(hidden, log_weights=latent["log_weights"])[:, 0], state, {}

        start, first = ops.full((batch_size,), START, "int32"), self.decoder.start(batch_size, prepared)
        return keras_vattn.decoding.greedy(step, first, start, END, max_length)["ids"].numpy()


def bidirectional(units, name):
    # A name of its own, so that a weight has the same path in every row.
    return layers.Bidirectional(layers.LSTM(units, return_sequences=True, name=f"{name}_lstm"), name=name)


def build(row, options, data, seed, steps):
    """The model of a row; what it shares with soft attention starts as there, under the same seed."""
    sizes = [len(data.symbols[side]) + END + 1 for side in ("src", "tgt")]
    keras.utils.set_random_seed(seed)
    reference = Model("soft", options, sizes, 1000 * seed, steps)
    if row == "soft":
        return reference
    model = Model(row, options, sizes, 1000 * seed, steps)
    variables = {variable.path: variable for variable in model.training_model.trainable_variables}
    for variable in reference.training_model.trainable_variables:
        variables[variable.path].assign(variable)
    return model
