"""Tiny backbones of every KerasHub class with attention, their inputs, and the table of their conversion."""

import inspect
import warnings

import keras
import numpy as np
import tensorflow as tf
from conversion_cases import bayesian_of

import keras_vattn
from keras_vattn.conversion.attention_kinds import all_attentions

with warnings.catch_warnings():
    # Packages that it imports raise warnings.
    warnings.simplefilter("ignore")
    import keras_hub
    from keras_hub.src.models.vae.vae_backbone import VAEBackbone

# fmt: off
# Arguments that most classes share, by name. One layer is enough if all layers are alike (Llama has two).
SHARED = {
    "vocabulary_size": 30, "vocab_size": 30, "num_layers": 1, "num_layers_enc": 1, "num_layers_dec": 1,
    "num_heads": 2, "num_attention_heads": 2, "num_query_heads": 4, "num_key_value_heads": 2, "hidden_dim": 16,
    "embedding_dim": 16, "intermediate_dim": 16, "head_dim": 4, "head_size": 8, "dropout": 0.0, "dropout_rate": 0.0,
    "num_experts": 3, "top_k": 2, "moe_intermediate_dim": 8, "shared_expert_intermediate_dim": 8,
    "shared_expert_intermediate_size": 8, "max_sequence_length": 6, "image_shape": (16, 16, 3), "patch_size": 8,
    "mlp_dim": 16, "projection_dim": 8, "data_format": "channels_last",
}
_LINEAR = {
    "num_layers": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 4,
    "linear_value_head_dim": 4, "partial_rotary_factor": 0.5, "layer_types": ["linear_attention", "full_attention"],
}
_T5GEMMA = {
    f"{part}_{name}": value
    for part in ("encoder", "decoder")
    for name, value in {
        "hidden_dim": 16, "intermediate_dim": 16, "num_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 4, "layer_types": ["sliding_attention", "full_attention"],
    }.items()
} | {"sliding_window": 3, "attn_logit_softcapping": 20.0}
# Classes without attention.
WITHOUT_ATTENTION = {
    f"{name}Backbone"
    for name in (
        *("BASNet", "CSPNet", "DeepLabV3", "DenseNet", "EfficientNet", "FNet", "FeaturePyramid", "HGNetV2"),
        *("MobileNet", "RWKV7", "ResNet", "RetinaNet", "VGG", "Xception"),
    )
}
# Language models that cannot generate without their preprocessor or without images.
NEED_IMAGES = {"Gemma3Backbone", "PARSeqBackbone", "PaliGemmaBackbone"}
# Additional or different arguments of a class.
SPECIFIC = {
    "AlbertBackbone": lambda: {"num_layers": 2},
    "BLIP2Backbone": lambda: {
        "vision_encoder": keras_hub.models.BLIP2VisionEncoder(
            16, 8, 1, 2, 16, 16, True, True, True, True, 0.0, 1e-6, 0.02, name="vision_encoder"
        ),
        "qformer": keras_hub.models.BLIP2QFormer(3, 2, 2, 16, 16, 16, 2, 0.0, 1e-6),
        "language_model": keras_hub.models.BLIP2CustomOPT(30, 1, 2, 16, 16, 3, 0.0, 16, 16),
    },
    "DFineBackbone": lambda: {
        "backbone": keras_hub.models.HGNetV2Backbone(
            depths=[1, 1], embedding_size=8, hidden_sizes=[16, 16], stem_channels=[3, 8, 8], hidden_act="relu",
            use_learnable_affine_block=True, stackwise_stage_filters=[[8, 8, 16, 1, 3, 3], [16, 8, 16, 1, 3, 3]],
            apply_downsample=[False, True], use_lightweight_conv_block=[False, False], image_shape=(32, 32, 3),
            out_features=["stage1", "stage2"],
        ),
        "decoder_in_channels": [16, 16], "encoder_hidden_dim": 16, "num_labels": 3, "num_denoising": 0,
        "learn_initial_query": False, "num_queries": 4, "anchor_image_size": (32, 32), "feat_strides": [4, 8],
        "num_feature_levels": 2, "encoder_in_channels": [16, 16], "encode_proj_layers": [1], "num_attention_heads": 2,
        "encoder_ffn_dim": 16, "num_encoder_layers": 1, "hidden_expansion": 0.5, "depth_multiplier": 0.5,
        "eval_idx": -1, "num_decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 16,
        "decoder_n_points": [2, 2], "lqe_hidden_dim": 8, "num_lqe_layers": 2, "image_shape": (32, 32, 3),
        "out_features": ["stage1", "stage2"], "seed": 0,
    },
    "CLIPBackbone": lambda: _two("CLIPVisionEncoder", "CLIPTextEncoder"),
    "MetaCLIP2Backbone": lambda: _two("MetaCLIP2VisionEncoder", "MetaCLIP2TextEncoder"),
    "SigLIPBackbone": lambda: _two("SigLIPVisionEncoder", "SigLIPTextEncoder", projection_dim=16),
    "SigLIPTextEncoder": lambda: {"projection_dim": 16},
    "DINOV2Backbone": lambda: {"position_embedding_shape": (16, 16, 3)},
    "DebertaV3Backbone": lambda: {"bucket_size": 4},
    "DepthAnythingBackbone": lambda: {
        "image_encoder": make_backbone("DINOV2Backbone", image_shape=(32, 32, 3), num_layers=2),
        "reassemble_factors": [2, 1], "neck_hidden_dims": [8, 8], "fusion_hidden_dim": 8, "head_hidden_dim": 8,
        "head_in_index": -1, "feature_keys": ["stage1", "stage2"],
    },
    "FluxBackbone": lambda: {
        "input_channels": 4, "hidden_size": 16, "mlp_ratio": 2.0, "num_heads": 2, "depth": 1,
        "depth_single_blocks": 1, "axes_dim": [2, 2, 4], "theta": 10_000, "use_bias": True, "image_shape": (6, 4),
        "text_shape": (5, 16), "image_ids_shape": (6, 3), "text_ids_shape": (5, 3), "y_shape": (16,),
    },
    "Gemma3Backbone": lambda: {"image_size": 16, "use_sliding_window_attention": True, "sliding_window_size": 3},
    "Gemma4Backbone": lambda: {
        "image_size": 16, "sliding_window_size": 3, "num_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "Gemma3nBackbone": lambda: {
        "text_vocab_size": 30, "text_hidden_size": 16, "num_hidden_layers": 2, "pad_token_id": 0,
        "num_attention_heads": 4, "intermediate_size": [16, 16], "hidden_activation": "gelu_approximate",
        "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 3, "rope_theta": 10_000.0,
        "max_position_embeddings": 6, "vocab_size_per_layer_input": 30, "hidden_size_per_layer_input": 4,
        "altup_num_inputs": 2, "laurel_rank": 2,
    },
    "GemmaBackbone": lambda: {
        "attention_logit_soft_cap": 20.0, "use_sliding_window_attention": True, "sliding_window_size": 3,
        "num_layers": 2,
    },
    "GptOssBackbone": lambda: {"sliding_window": 3, "num_layers": 2},
    "LlamaBackbone": lambda: {"num_layers": 2},
    "MiTBackbone": lambda: {
        "layerwise_depths": [1, 1], "num_layers": 2, "layerwise_num_heads": [1, 2], "layerwise_sr_ratios": [2, 1],
        "max_drop_path_rate": 0.0, "layerwise_patch_sizes": [7, 3], "layerwise_strides": [4, 2],
        "hidden_dims": [8, 16],
    },
    "MistralBackbone": lambda: {"sliding_window": 3},
    "MixtralBackbone": lambda: {"sliding_window": 3},
    "MobileNetV5Backbone": lambda: {
        "stackwise_block_types": [["er"], ["mqa", "mqa"]], "stackwise_num_blocks": [1, 2],
        "stackwise_num_filters": [[8], [16, 16]], "stackwise_strides": [[2], [2, 1]],
        "stackwise_act_layers": [["relu"], ["relu", "relu"]], "stackwise_exp_ratios": [[2.0], [2.0, 2.0]],
        "stackwise_se_ratios": [[0.0], [0.0, 0.0]], "stackwise_exp_kernel_sizes": [[3], [0, 0]],
        "stackwise_pw_kernel_sizes": [[1], [0, 0]], "stackwise_num_heads": [[0], [2, 2]],
        "stackwise_key_dims": [[0], [4, 4]], "stackwise_value_dims": [[0], [4, 4]],
        "stackwise_kv_strides": [[0], [1, 1]], "stackwise_use_cpe": [[False], [False, False]], "use_msfa": False,
        "image_shape": (32, 32, 3),
        **{f"stackwise_dw_{part}kernel_sizes": [[0], [3, 3]] for part in ("", "start_", "end_")},
    },
    "MoonshineBackbone": lambda: {
        "filter_dim": 16, "encoder_num_layers": 1, "decoder_num_layers": 1, "encoder_num_heads": 2,
        "decoder_num_heads": 2,
    },
    "PARSeqBackbone": lambda: {
        "image_encoder": make_backbone("ViTBackbone", use_class_token=False),
        "max_label_length": 5, "decoder_hidden_dim": 16, "num_decoder_layers": 1, "num_decoder_heads": 2,
        "decoder_mlp_dim": 16, "attention_dropout": 0.0,
    },
    "PaliGemmaBackbone": lambda: {
        "image_size": 16, "vit_patch_size": 8, "vit_num_heads": 2, "vit_hidden_dim": 16, "vit_num_layers": 1,
    },
    "Qwen3_5Backbone": lambda: _LINEAR, "Qwen3_5MoeBackbone": lambda: _LINEAR,
    "SAMBackbone": lambda: {
        "image_encoder": make_backbone("ViTDetBackbone"),
        "prompt_encoder": keras_hub.layers.SAMPromptEncoder(
            hidden_size=8, image_embedding_size=(2, 2), input_image_size=(32, 32), mask_in_channels=4
        ),
        "mask_decoder": keras_hub.layers.SAMMaskDecoder(
            hidden_size=8, num_layers=1, intermediate_dim=16, num_heads=2, embedding_dim=8, iou_head_depth=2,
            iou_head_hidden_dim=8,
        ),
    },
    "SAM3PromptableConceptBackbone": lambda: _sam3(
        {"image_shape": (32, 32, 3), "patch_size": 8}, {"num_layers": 1, "hidden_dim": 16, "num_heads": 2}
    ),
    "SegFormerBackbone": lambda: {"image_encoder": make_backbone("MiTBackbone"), "projection_filters": 8},
    "SmolLM3Backbone": lambda: {
        "num_layers": 2,
        "num_attention_heads": 4, "attention_bias": False, "attention_dropout": 0.0,
        "rope_layer_enabled_list": [True, False], "layer_types": ["attention", "attention"], "mlp_bias": False,
        "layer_norm_epsilon": 1e-6, "max_position_embeddings": 6, "rope_theta": 10_000.0,
        "partial_rotary_factor": 1.0,
    },
    "StableDiffusion3Backbone": lambda: {
        "mmdit_patch_size": 2, "mmdit_hidden_dim": 16, "mmdit_num_layers": 2, "mmdit_num_heads": 2,
        "mmdit_position_size": 8, "mmdit_qk_norm": None, "mmdit_dual_attention_indices": None, "latent_channels": 4,
        "vae": VAEBackbone(
            [32, 32, 32, 32], [1, 1, 1, 1], [32, 32, 32, 32], [1, 1, 1, 1], sample_channels=8, sampler_method="mode"
        ),
        "clip_l": make_backbone("CLIPTextEncoder", intermediate_output_index=0),
        "clip_g": make_backbone("CLIPTextEncoder", intermediate_output_index=0),
        "image_shape": (32, 32, 3),
    },
    "SwinTransformerBackbone": lambda: {
        "embed_dim": 8, "depths": [2, 1], "num_heads": [2, 2], "window_size": 2, "patch_size": 2, "drop_path": 0.0,
    },
    "T5Backbone": lambda: {"num_layers": 2}, "T5GemmaBackbone": lambda: _T5GEMMA, "T5Gemma2Backbone": lambda: _T5GEMMA,
    "ViTDetBackbone": lambda: {
        "num_layers": 2, "hidden_size": 16, "global_attention_layer_indices": [1], "window_size": 2,
        "num_output_channels": 8, "image_shape": (32, 32, 3),
    },
    "VideoPrismBackbone": lambda: {
        "num_frames": 2, "num_spatial_layers": 1, "num_temporal_layers": 1, "num_auxiliary_layers": 0,
    },
    "WhisperBackbone": lambda: {"max_encoder_sequence_length": 8, "max_decoder_sequence_length": 6, "num_mels": 4},
}
# fmt: on


def _sam3(image, sizes):
    layers, wide = keras_hub.layers, {**sizes, "intermediate_dim": 16}
    vision = layers.SAM3VisionEncoder(
        **image,
        **wide,
        fpn_hidden_dim=16,
        fpn_scale_factors=[4.0, 2.0, 1.0, 0.5],
        pretrain_image_shape=(16, 16, 3),
        window_size=2,
        global_attn_indexes=[0],
    )
    decoder = {"hidden_dim": 16, "num_heads": 2}
    return {
        "vision_encoder": vision,
        "text_encoder": layers.SAM3TextEncoder(vocabulary_size=30, embedding_dim=16, **wide),
        "geometry_encoder": layers.SAM3GeometryEncoder(**wide, roi_size=2),
        "detr_encoder": layers.SAM3DetrEncoder(**wide),
        "detr_decoder": layers.SAM3DetrDecoder(**image, **wide, num_queries=3),
        "mask_decoder": layers.SAM3MaskDecoder(num_upsampling_stages=3, **decoder),
    }


def _two(vision, text, **options):
    return {"vision_encoder": make_backbone(vision), "text_encoder": make_backbone(text, **options)}


def make_backbone(name, **options):
    """Return a tiny backbone of a KerasHub class, with random weights."""
    kind = getattr(keras_hub.models, name)
    specific = SPECIFIC[name]() if name in SPECIFIC else {}
    accepted = inspect.signature(kind.__init__).parameters
    arguments = {key: value for key, value in SHARED.items() if key in accepted} | specific | options
    return kind(**arguments)


def inputs_of(model, rows=3):
    """Return inputs of a model: an array or a dictionary of arrays. The last rows of tokens have padding."""
    generator = np.random.default_rng(0)
    lengths = np.maximum(1, 6 - 2 * np.arange(rows))[:, None]

    def array(spec):
        shape, kind = (
            [rows, *(6 if x is None else x for x in spec.shape[1:])],
            keras.backend.standardize_dtype(spec.dtype),
        )
        if spec.name == "encoder_padding_mask" and any(x.name == "encoder_input_values" for x in model.inputs):
            return np.ones((rows, 1600), kind)
        if "mask" in spec.name and len(shape) == 2:
            return (np.arange(shape[1]) < lengths).astype(kind)
        if any(each in spec.name for each in ("segment", "position", "indices", "box", "label")):
            return np.zeros(shape, kind)
        if spec.name == "encoder_input_values":
            shape[1] = 1600
        if "int" in kind:
            return generator.integers(1, 30, size=shape).astype(kind)
        if kind == "bool":
            return np.ones(shape, kind)
        return generator.normal(size=shape).astype(kind)

    one = isinstance(model.input, keras.KerasTensor)
    return array(model.input) if one else {x.name: array(x) for x in model.inputs}


def attention_backbones():
    """Return the names of the backbone classes with attention."""
    kinds = {name: getattr(keras_hub.models, name) for name in dir(keras_hub.models)}
    base = keras_hub.models.Backbone
    backbones = {x: name for name, x in kinds.items() if isinstance(x, type) and issubclass(x, base) and x is not base}
    return sorted({kind.__name__ for kind in backbones} - WITHOUT_ATTENTION)


def outputs_of(model, inputs, **options):
    """Return all outputs of a model as a list of float arrays."""
    return [np.asarray(x, "float32") for x in keras.tree.flatten(model(inputs, **options))]


def largest_difference(outputs, reference):
    return max(float(np.abs(x - y).max()) for x, y in zip(outputs, reference, strict=True))


def language_model_of(backbone):
    """Return the language model of a backbone that reads only text, or `None` if there is no such model."""
    name = type(backbone).__name__
    tasks = [getattr(keras_hub.models, name.replace("Backbone", task), None) for task in ("CausalLM", "Seq2SeqLM")]
    kind = tasks[0] or tasks[1]
    if kind is None or not name.endswith("Backbone") or name in NEED_IMAGES:
        return None
    # The output layer of EdRec belongs to the task.
    keras.utils.set_random_seed(1)
    return kind(backbone=backbone, preprocessor=None)


def generated_ids(model):
    """Return two prompts and their greedy continuations by a language model, generated with a cache."""
    prompt = {"token_ids": np.array([[3, 7, 9, 4, 0, 0], [5, 2, 8, 6, 1, 0]], "int32")}
    prompt["padding_mask"] = (prompt["token_ids"] > 0).astype("int32")
    model.compile(sampler="greedy", run_eagerly=True)
    if isinstance(model, keras_hub.models.Seq2SeqLM):
        begun = {"decoder_token_ids": np.array([[2, 8, 0, 0, 0, 0]] * 2, "int32")}
        begun["decoder_padding_mask"] = (begun["decoder_token_ids"] > 0).astype("int32")
        read = {f"encoder_{name}": x for name, x in prompt.items()}
        return model.generate({**read, **begun}, stop_token_ids=None)["decoder_token_ids"]
    return model.generate(prompt, stop_token_ids=None)["token_ids"]


def row_of(name, folder, prior="fixed"):
    """Return a row of the table: the result of `to_bayesian` for a backbone class.

    The row is a dictionary. "attentions", "converted" and "called" are numbers of attention layers. "difference" is the
    largest difference of an output at inference, and "back" the same after `to_deterministic`. "kl" is the KL of a
    training step in nats, and "gradient" the norm of the gradient of its loss. "same" is whether generation with a
    cache is unchanged, `None` without generation. The model, its inputs and outputs are saved in
    `folder` for another process, unless it is `None`.
    """
    keras.utils.set_random_seed(0)
    model = make_backbone(name)
    attentions = all_attentions(model)
    if not attentions:
        return None
    # In KerasHub 0.32 the text mask of SAM 3 supports only one example.
    inputs = inputs_of(model, rows=1 if name.startswith("SAM3") else 3)
    expected = outputs_of(model, inputs, training=False)
    bayesian = bayesian_of(model, prior=prior, seed=1)
    row = {"attentions": len(attentions), "converted": len(keras_vattn.stochastic_layers(bayesian))}
    outputs = outputs_of(bayesian, inputs, training=False)
    row["difference"] = largest_difference(outputs, expected)
    if folder is not None:
        bayesian.save(folder / f"{name}.keras")
        flat = {f"input_{key}" if isinstance(inputs, dict) else "input": x for key, x in _items(inputs)}
        np.savez(folder / f"{name}.npz", *outputs, **flat)
    restored = keras_vattn.to_deterministic(bayesian)
    row["back"] = largest_difference(outputs_of(restored, inputs, training=False), expected)
    language_model = language_model_of(model)
    row["same"] = None
    if language_model is not None:
        row["same"] = bool((generated_ids(language_model) == generated_ids(language_model_of(bayesian))).all())
    with tf.GradientTape() as tape:
        drawn = [x for x in keras.tree.flatten(bayesian(inputs, training=True)) if x.dtype.is_floating]
        loss = sum(tf.reduce_mean(tf.square(x)) for x in drawn) + 1e-3 * sum(bayesian.losses)
    row["called"] = sum(bool(x.losses) for x in keras_vattn.stochastic_layers(bayesian))
    row["kl"] = float(sum(keras_vattn.divergences(bayesian).values()))
    gradients = tape.gradient(loss, [x.value for x in bayesian.trainable_variables], unconnected_gradients="zero")
    row["gradient"] = float(tf.linalg.global_norm([tf.convert_to_tensor(x) for x in gradients]))
    return row


def _items(inputs):
    return inputs.items() if isinstance(inputs, dict) else [(None, inputs)]


LOAD = """
import pathlib, sys, keras, keras_hub, keras_vattn, numpy as np
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.keras")):
    saved = np.load(path.with_suffix(".npz"))
    inputs = {key[6:]: saved[key] for key in saved if key.startswith("input_")} or saved["input"]
    try:
        model = keras.saving.load_model(path)
        found = [np.asarray(x, "float32") for x in keras.tree.flatten(model(inputs, training=False))]
        difference = max(float(abs(x - saved[f"arr_{i}"]).max()) for i, x in enumerate(found))
        print(path.stem, len(keras_vattn.stochastic_layers(model)), difference, flush=True)
    except Exception as error:
        print(path.stem, "cannot be loaded:", " ".join(str(error).split())[:200], flush=True)
"""
