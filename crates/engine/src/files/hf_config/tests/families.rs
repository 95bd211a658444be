//! Configurations of further families.

use super::*;

/// Returns the configuration of a model in the fixtures.
fn of(name: &str) -> Value {
    let path = fixture("families").join(name).join("config.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Returns the window of each layer, and whether it has rotary positions.
fn layers(config: &Value) -> Vec<(Option<u32>, bool)> {
    let layers = parse(config).unwrap().layers.into_iter();
    let of = |layer: Arc<LayerShape>| {
        let attention = layer.mixer.attention().unwrap();
        (attention.heads.scores.window.map(|window| window.get()), attention.rope.is_some())
    };
    layers.map(of).collect()
}

#[test]
fn windows_are_those_of_layer_types_or_of_the_family_s_pattern() {
    let windows =
        |config: &Value| layers(config).into_iter().map(|(window, _)| window).collect::<Vec<_>>();
    let mistral = |changes: Value| windows(&with(&of("mistral"), &changes));
    assert_eq!(mistral(json!({})), [None, None]);
    assert_eq!(mistral(json!({"sliding_window": 7})), [Some(7); 2]);
    let mut missing = of("mistral");
    missing.as_object_mut().unwrap().shift_remove("sliding_window");
    assert_eq!(windows(&missing), [Some(4096); 2]);
    let listed =
        json!({"sliding_window": 7, "layer_types": ["sliding_attention", "full_attention"]});
    assert_eq!(mistral(listed), [Some(7), None]);
    let gemma = |key: &str, every: u64| {
        let mut config =
            with(&of("gemma3_text"), &json!({"layer_types": null, "num_hidden_layers": 7}));
        config[key] = every.into();
        windows(&config)
    };
    let [near, all] = [Some(7), None];
    assert_eq!(gemma("sliding_window_pattern", 3), [near, near, all, near, near, all, near]);
    assert_eq!(gemma("_sliding_window_pattern", 3), [near, near, near, near, near, all, near]);
    let qwen = json!({"use_sliding_window": true, "max_window_layers": 22, "sliding_window": 9});
    let qwen = windows(&with(&qwen2(), &qwen));
    assert_eq!((qwen.iter().filter(|window| window.is_some()).count(), qwen[22]), (2, Some(9)));
    let null = json!({"layer_types": ["sliding_attention", "full_attention"]});
    let told = refused(&with(&of("mistral"), &null));
    let listed = "`layer_types` has \"sliding_attention\", and `sliding_window` is null";
    assert!(told.contains(listed), "{told}");
}

/// Returns the configuration of a model whose window is null.
fn without_window(name: &str) -> Value {
    let mut config = of(name);
    config["sliding_window"] = Value::Null;
    config
}

#[test]
fn layers_of_a_pattern_need_a_window_with_and_without_layer_types() {
    let told = refused(&without_window("gemma3_text"));
    let listed = "`layer_types` has \"sliding_attention\", and `sliding_window` is null";
    assert!(told.contains(listed), "{told}");
    for family in ["gemma2", "gemma3_text", "olmo3"] {
        let mut config = without_window(family);
        config["layer_types"] = Value::Null;
        let told = refused(&config);
        let wanted = format!("layers of \"{family}\" have windows, and `sliding_window` is null");
        assert!(told.contains(&wanted), "{told}");
    }
    let mut full = without_window("gemma3_text");
    (full["layer_types"], full["sliding_window_pattern"]) = (Value::Null, 1.into());
    assert!(layers(&full).iter().all(|(window, _)| window.is_none()));
}

#[test]
fn a_one_in_no_rope_layers_is_a_layer_with_positions() {
    let roped = |changes: Value| {
        layers(&with(&of("smollm3"), &changes))
            .into_iter()
            .map(|(_, roped)| roped)
            .collect::<Vec<_>>()
    };
    assert_eq!(roped(json!({})), [true, true, true, false]);
    assert_eq!(roped(json!({"no_rope_layers": [0, 1, 1, 1]})), [false, true, true, true]);
    assert_eq!(
        roped(json!({"no_rope_layers": null, "no_rope_layer_interval": 2})),
        [true, false, true, false]
    );
    let refused = refused(&with(&of("smollm3"), &json!({"no_rope_layers": [1, 2, 1, 1]})));
    assert!(
        refused.contains("`no_rope_layers` must be a list of 0 and 1, one for each of 4 layers")
    );
}

#[test]
fn the_configuration_within_text_config_is_read_and_the_outer_head_counts() {
    let nested = of("gemma3");
    let config = parse(&nested).unwrap();
    assert_eq!((config.model_type, config.tie_word_embeddings), ("gemma3_text", true));
    assert_eq!(config.tensors()[0].0, "language_model.model.embed_tokens.weight");
    let untied = parse(&with(&nested, &json!({"tie_word_embeddings": false}))).unwrap();
    assert!(!untied.tie_word_embeddings);
    assert_eq!(untied.tensors().last().unwrap().0, "language_model.lm_head.weight");
    let mut unnamed = nested.clone();
    unnamed["text_config"].as_object_mut().unwrap().shift_remove("model_type");
    assert_eq!(parse(&unnamed).unwrap(), config);
    let other = refused(&with(&nested, &json!({"model_type": "qwen2_5_vl"})));
    assert!(other.contains("`model_type` is \"qwen2_5_vl\"; supported: \"gemma2\""), "{other}");
    let packed = refused(&with(&nested, &json!({"quantization_config": {"bits": 4}})));
    assert!(packed.contains("`quantization_config` is an object"), "{packed}");
}

#[test]
fn what_a_family_cannot_do_is_refused_and_what_it_ignores_is_a_warning() {
    let both_ways =
        refused(&with(&of("gemma3_text"), &json!({"use_bidirectional_attention": true})));
    assert!(both_ways.contains("`use_bidirectional_attention` is true; only attention to earlier"));
    let silu = refused(&with(&of("gemma2"), &json!({"hidden_activation": "silu"})));
    assert!(
        silu.contains("`hidden_activation` is \"silu\"; supported: \"gelu_pytorch_tanh\""),
        "{silu}"
    );
    let flat = json!({"rope_parameters": {"rope_type": "linear", "factor": 2.0}});
    let flat = refused(&with(&of("olmo3"), &flat));
    assert!(flat.contains("supported: objects `full_attention` and `sliding_attention`"), "{flat}");
    for beside in [
        json!({"rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
        json!({"rope_theta": 1234.0}),
        json!({"rope_local_base_freq": 77.0}),
    ] {
        let two = refused(&with(&of("gemma3_text"), &beside));
        assert!(two.contains("rope_parameters") && two.contains("rope_"), "{two}");
    }
    let half = refused(&with(&of("mistral"), &json!({"partial_rotary_factor": 0.5})));
    assert!(half.contains("`partial_rotary_factor` is 0.5; supported: 1"), "{half}");
    for (name, changes, warning) in [
        ("gemma3_text", json!({"attn_logit_softcapping": 3.0}), "`attn_logit_softcapping` (3.0)"),
        ("mistral", json!({"no_rope_layers": [1, 0]}), "`no_rope_layers` (a list)"),
        ("phi3", json!({"resid_pdrop": 0.1}), "`resid_pdrop` is 0.1, and there is no dropout"),
        ("smollm3", json!({"final_logit_softcapping": 30.0}), "`final_logit_softcapping` (30.0)"),
        (
            "olmo3",
            json!({"rope_parameters": null, "rope_theta": 1000.0}),
            "`rope_theta` is 1000: transformers 5",
        ),
        (
            "mistral",
            json!({"architectures": ["LlamaForCausalLM"]}),
            "`architectures` (LlamaForCausalLM)",
        ),
        ("phi3", json!({}), "sequences have at most 64 of 256 tokens"),
    ] {
        let found = parse(&with(&of(name), &changes)).unwrap().warning().unwrap();
        assert!(found.contains(warning), "{name}: {found}");
    }
    for name in [
        "mistral",
        "ministral",
        "ministral3",
        "smollm3",
        "gemma2",
        "gemma3",
        "gemma3_text",
        "olmo3",
        "qwen3_moe",
        "gpt_oss",
        "qwen3_5",
        "qwen3_5_moe",
        "qwen3_5_text",
        "lfm2",
    ] {
        assert_eq!(parse(&of(name)).unwrap().warning(), None, "{name}");
    }
}

#[test]
fn every_key_of_a_configuration_changes_the_model_or_is_refused_or_is_known_to_have_no_effect() {
    const INERT: [&str; 28] = [
        "_sliding_window_pattern",
        "architectures",
        "attention_dropout",
        "attn_logit_softcapping",
        "boi_token_index",
        "bos_token_id",
        "dtype",
        "embd_pdrop",
        "eoi_token_index",
        "eos_token_id",
        "image_token_index",
        "initializer_range",
        "max_position_embeddings",
        "mm_tokens_per_image",
        "no_rope_layer_interval",
        "pad_token_id",
        "resid_pdrop",
        "transformers_version",
        "use_cache",
        "use_bidirectional_attention",
        "vision_config",
        "use_sliding_window",
        "sliding_window",
        "layer_types",
        "original_max_position_embeddings",
        "output_router_logits",
        "rope_parameters",
        "router_aux_loss_coef",
    ];
    for name in [
        "mistral",
        "ministral",
        "ministral3",
        "smollm3",
        "gemma2",
        "gemma3_text",
        "olmo3",
        "phi3",
        "qwen3_moe",
        "gpt_oss",
        "qwen3_5_text",
        "qwen3_5_moe",
        "lfm2",
    ] {
        let base = of(name);
        let base = base.get("text_config").cloned().unwrap_or(base);
        let model = parse(&base).unwrap();
        for (key, value) in base.as_object().unwrap() {
            let other = match value {
                Value::Bool(flag) => json!(!flag),
                Value::Number(number) => json!(number.as_f64().unwrap() * 2.0),
                Value::String(text) => json!(format!("{text}x")),
                Value::Null | Value::Array(_) | Value::Object(_) => json!("other"),
            };
            let mut changed = base.clone();
            changed[key] = match other.as_f64() {
                Some(number) if value.is_u64() => json!(number as u64),
                _ => other,
            };
            let same = parse(&changed).is_ok_and(|config| {
                let shape =
                    |c: &HfConfig| (c.layers.clone(), c.tensors(), c.frequencies(), c.head_softcap);
                shape(&config) == shape(&model)
            });
            assert!(!same || INERT.contains(&key.as_str()), "{name}: `{key}` has no effect");
        }
    }
}

#[test]
fn factors_of_yarn_and_longrope_are_those_of_their_papers() {
    let rope = |rope: Value| {
        parse(&with(&qwen3(), &json!({ "rope_scaling": rope }))).unwrap().ropes.remove(0)
    };
    let yarn = rope(
        json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}),
    );
    let found = yarn.frequencies(128);
    let plain = Rope::plain(1e6).frequencies(128);
    assert!((found.factor - 1.138_629_4).abs() < 1e-6, "{}", found.factor);
    assert_eq!(found.inv_freq[0], plain.inv_freq[0]);
    assert_eq!(found.inv_freq[63], plain.inv_freq[63] / 4.0);
    let ratio: Vec<f32> = found.inv_freq.iter().zip(&plain.inv_freq).map(|(a, b)| b / a).collect();
    assert!(ratio.is_sorted(), "{ratio:?}");
    let given =
        json!({"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.5, "truncate": false});
    assert_eq!(rope(given).frequencies(128).factor, 1.5);
    let phi = parse(&of("phi3")).unwrap();
    let [short, long] =
        [phi.clone(), phi.with_long_rope()].map(|config| config.frequencies().remove(0));
    assert_eq!((short.inv_freq.len(), short.head_dim), (6, 16));
    assert!((short.factor - (1.0 + 4.0_f32.ln() / 64.0_f32.ln()).sqrt()).abs() < 1e-6);
    assert_eq!((short.factor, short.inv_freq[0] / long.inv_freq[0]), (long.factor, 1.1));
    let mut same = of("phi3");
    same["rope_parameters"]["short_factor"] = same["rope_parameters"]["long_factor"].clone();
    let same = parse(&same).unwrap();
    assert_eq!((same.max_position_embeddings, same.warning()), (256, None));
    assert_eq!(same.frequencies()[0], long);
}

/// Returns the experts of each layer: their number, that of a token and their width.
fn experts(config: &Value) -> Vec<Option<[usize; 3]>> {
    let layers = parse(config).unwrap().layers.into_iter();
    let of = |layer: Arc<LayerShape>| {
        let experts = layer.mlp.experts()?;
        Some([experts.router.experts, experts.router.chosen, experts.width()])
    };
    layers.map(of).collect()
}

#[test]
fn experts_are_in_the_layers_and_of_the_sizes_that_keys_say() {
    let qwen = |changes: Value| experts(&with(&of("qwen3_moe"), &changes));
    let (some, none) = (Some([6, 3, 12]), None);
    assert_eq!(qwen(json!({})), [some, none, some]);
    assert_eq!(qwen(json!({"mlp_only_layers": []})), [some; 3]);
    assert_eq!(qwen(json!({"mlp_only_layers": [], "decoder_sparse_step": 2})), [none, some, none]);
    let mut missing = of("qwen3_moe");
    for key in ["num_local_experts", "num_experts_per_tok", "moe_intermediate_size"] {
        missing.as_object_mut().unwrap().shift_remove(key);
    }
    assert_eq!(experts(&missing)[0], Some([128, 8, 768]));
    assert_eq!(experts(&of("qwen3_5_moe")), [Some([8, 2, 12]); 2]);
    assert_eq!(experts(&of("gpt_oss")), [Some([4, 2, 32]); 2]);
    let mut missing = of("gpt_oss");
    for key in ["num_local_experts", "num_experts_per_tok", "attention_bias", "rope_parameters"] {
        missing.as_object_mut().unwrap().shift_remove(key);
    }
    assert_eq!(experts(&missing)[0], Some([128, 4, 32]));
    let config = parse(&missing).unwrap();
    let published = json!({"rope_type": "yarn", "rope_theta": 150_000.0, "factor": 32.0, "beta_fast": 32.0,
        "beta_slow": 1.0, "truncate": false, "original_max_position_embeddings": 4096});
    let given = parse(&with(&missing, &json!({"rope_parameters": published}))).unwrap();
    assert_eq!(
        (&config.ropes, config.layers[0].mixer.attention().unwrap().o.bias),
        (&given.ropes, true)
    );
}

#[test]
fn experts_that_cannot_be_are_refused_by_name() {
    for (name, changes, message) in [
        (
            "qwen3_moe",
            json!({"num_experts_per_tok": 7}),
            "`num_experts_per_tok` is 7, and there are 6 experts",
        ),
        (
            "qwen3_moe",
            json!({"num_experts": 8}),
            "`num_experts` is 8 and `num_local_experts` is 6; keep one",
        ),
        (
            "qwen3_moe",
            json!({"num_local_experts": 257}),
            "`num_local_experts` is 257; a whole number from 1 to 256",
        ),
        (
            "qwen3_moe",
            json!({"num_local_experts": 0}),
            "`num_local_experts` is 0; a whole number from 1 to 256",
        ),
        (
            "qwen3_moe",
            json!({"mlp_only_layers": [3]}),
            "`mlp_only_layers` has 3, and there are 3 layers from 0",
        ),
        (
            "qwen3_moe",
            json!({"mlp_only_layers": 1}),
            "`mlp_only_layers` is 1; a list of numbers of layers is needed",
        ),
        (
            "qwen3_moe",
            json!({"quantization_config": {"quant_method": "mxfp4"}}),
            "f32, f16 and bf16 are supported",
        ),
        (
            "gpt_oss",
            json!({"quantization_config": {"quant_method": "gptq"}}),
            "experts of `quant_method` \"mxfp4\"",
        ),
        ("gpt_oss", json!({"swiglu_limit": 0}), "`swiglu_limit` is 0; a positive number is needed"),
    ] {
        let refused = refused(&with(&of(name), &changes));
        assert!(refused.contains(message), "{message} is missing in {refused}");
    }
    let noted = parse(&with(&of("qwen3_moe"), &json!({"output_router_logits": true}))).unwrap();
    let warning = noted.warning().unwrap();
    assert!(warning.contains("`output_router_logits` is true, which has no effect"), "{warning}");
}

#[test]
fn a_shared_expert_has_a_width_of_its_own_and_keys_that_qwen_3_5_does_not_read_are_noted() {
    let text = of("qwen3_5_moe")["text_config"].clone();
    let shared =
        |config: &Value| parse(config).unwrap().layers[0].mlp.experts().unwrap().shared_width();
    assert_eq!(shared(&text), 12);
    assert_eq!(shared(&with(&text, &json!({"shared_expert_intermediate_size": 20}))), 20);
    assert_eq!(shared(&of("qwen3_moe")), 0);
    let mut missing = text.clone();
    for key in ["num_experts", "num_experts_per_tok", "moe_intermediate_size"] {
        missing.as_object_mut().unwrap().shift_remove(key);
    }
    missing.as_object_mut().unwrap().shift_remove("shared_expert_intermediate_size");
    assert_eq!((experts(&missing)[0], shared(&missing)), (Some([256, 8, 512]), 512));
    let fine = json!({"norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": []});
    assert_eq!(parse(&with(&text, &fine)).unwrap().warning(), None);
    for (key, value) in [
        ("norm_topk_prob", json!(false)),
        ("decoder_sparse_step", json!(2)),
        ("mlp_only_layers", json!([0])),
    ] {
        let mut changed = text.clone();
        changed[key] = value;
        let warning = parse(&changed).unwrap().warning().unwrap();
        assert!(warning.contains(&format!("`{key}` is ")), "{warning}");
        assert!(warning.contains("this family does not read it"), "{warning}");
    }
    let none = json!({"shared_expert_intermediate_size": 0});
    let told = refused(&with(&text, &none));
    assert!(told.contains("`shared_expert_intermediate_size` is 0"), "{told}");
}

#[test]
fn layers_without_attention_are_those_of_layer_types_or_of_the_family_s_pattern() {
    let attention = |config: &Value| {
        let layers = parse(config).unwrap().layers.into_iter();
        layers.map(|layer| layer.mixer.attention().is_some()).collect::<Vec<_>>()
    };
    let (qwen, lfm2) = (of("qwen3_5_text"), of("lfm2"));
    assert_eq!(attention(&qwen), [false, false, false, true]);
    let every = json!({"layer_types": null, "full_attention_interval": 2});
    assert_eq!(attention(&with(&qwen, &every)), [false, true, false, true]);
    assert_eq!(attention(&lfm2), [false, false, true, false]);
    let indices = json!({"layer_types": null, "full_attn_idxs": [0, 3]});
    assert_eq!(attention(&with(&lfm2, &indices)), [true, false, false, true]);
    assert_eq!(attention(&with(&lfm2, &json!({"layer_types": null}))), [true; 4]);
    let kinds = |kinds: [&str; 4]| json!({ "layer_types": kinds });
    let full = "full_attention";
    for (config, changes, message) in [
        (
            &qwen,
            kinds(["conv", full, full, full]),
            "\"conv\"; supported: \"full_attention\", \"linear",
        ),
        (
            &lfm2,
            kinds(["linear_attention", full, full, full]),
            "supported: \"full_attention\", \"conv\"",
        ),
        (&lfm2, kinds(["conv"; 4]), "no layer has attention"),
        (
            &qwen,
            json!({"linear_num_value_heads": 3}),
            "(3) is not a multiple of `linear_num_key_heads` (2)",
        ),
        (&qwen, json!({"linear_conv_kernel_dim": 0}), "`linear_conv_kernel_dim` is 0"),
        (&qwen, json!({"partial_rotary_factor": 0.01, "rope_parameters": null}), "rotates 0 of 32"),
    ] {
        let refused = refused(&with(config, &changes));
        assert!(refused.contains(message), "{message} is missing in {refused}");
    }
}

#[test]
fn the_width_of_lfm2_is_adjusted_and_its_head_has_a_key_of_its_own() {
    let width = |changes: Value| {
        parse(&with(&of("lfm2"), &changes)).unwrap().layers[0].mlp.width_of_token()
    };
    assert_eq!(width(json!({})), 80);
    assert_eq!(width(json!({"block_auto_adjust_ff_dim": false})), 120);
    assert_eq!(width(json!({"block_ff_dim": 60, "block_ffn_dim_multiplier": null})), 48);
    assert_eq!(width(json!({"block_ffn_dim_multiplier": 1.1})), 96);
    let untied = json!({"tie_embedding": false, "tie_word_embeddings": true});
    assert!(!parse(&with(&of("lfm2"), &untied)).unwrap().tie_word_embeddings);
}

#[test]
fn qwen_3_5_within_a_larger_model_has_its_names_and_skips_vision_and_the_prediction_of_more_tokens()
{
    let moe = parse(&of("qwen3_5_moe")).unwrap();
    assert_eq!(moe.model_type, "qwen3_5_moe_text");
    let (_, kind) = moe.layer_kinds().remove(0);
    assert_eq!(
        kind,
        "Gated DeltaNet, heads 4/2 of 12/16, convolution of 4, norms before (1 + w), 2 of 8 experts of SwiGLU 12, a shared \
         one of 12"
    );
    let config = parse(&of("qwen3_5")).unwrap();
    assert_eq!(config.model_type, "qwen3_5_text");
    assert_eq!(config.tensors()[0].0, "model.language_model.embed_tokens.weight");
    assert!(config.skips("mtp.fc.weight") && config.skips("model.visual.patch_embed.proj.weight"));
    let described: Vec<String> = config.layer_kinds().into_iter().map(|(_, kind)| kind).collect();
    assert_eq!(
        described,
        [
            "Gated DeltaNet, heads 4/2 of 12/16, convolution of 4, norms before (1 + w), SwiGLU 48",
            "full attention, rope 10000 of 0.25 of a head, heads 2/1 of 32, q/k norm of each head, output gate, norms \
             before (1 + w), SwiGLU 48",
        ]
    );
}
