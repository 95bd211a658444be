#![allow(clippy::unwrap_used)]

mod families;

use serde_json::json;

use super::*;
use crate::files::parts::Layer;
use crate::net::tests::fixture;
use crate::net::tests::mutation::fuzz;

/// A configuration with keys changed; null takes one away.
fn with(base: &Value, changes: &Value) -> Value {
    let mut config = base.clone();
    for (key, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(config.as_object_mut().unwrap().shift_remove(key)),
            value => config[key] = value.clone(),
        }
    }
    config
}

fn parse(config: &Value) -> Result<HfConfig, HfConfigError> {
    HfConfig::parse(config.to_string().as_bytes())
}

fn refused(config: &Value) -> String {
    parse(config).unwrap_err().to_string()
}

/// Qwen2.5-0.5B.
fn qwen2() -> Value {
    json!({
        "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
        "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896,
        "initializer_range": 0.02, "intermediate_size": 4864, "max_position_embeddings": 32768,
        "max_window_layers": 24, "model_type": "qwen2", "num_attention_heads": 14,
        "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true,
        "torch_dtype": "bfloat16", "transformers_version": "4.40.1", "use_cache": true,
        "use_mrope": false, "use_sliding_window": false, "vocab_size": 151936
    })
}

/// Qwen3-0.6B.
fn qwen3() -> Value {
    json!({
        "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
        "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
        "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
        "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
        "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
        "sliding_window": null, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false,
        "vocab_size": 151936
    })
}

/// Llama 3.2 1B.
fn llama() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "head_dim": 64,
        "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
        "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
        "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16,
        "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"
        },
        "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256
    })
}

#[test]
fn published_models_have_as_many_parameters_as_they_say() {
    let counts = [(qwen2(), 494_032_768), (qwen3(), 596_049_920), (llama(), 1_235_814_400_u64)];
    for (config, expected) in counts {
        let tensors = parse(&config).unwrap().tensors();
        let size = |shape: &[usize]| shape.iter().map(|&n| n as u64).product::<u64>();
        assert_eq!(tensors.iter().map(|(_, shape)| size(shape)).sum::<u64>(), expected);
    }
}

#[test]
fn the_families_differ_in_these_fields() {
    let [qwen2, qwen3, llama] = [qwen2(), qwen3(), llama()].map(|config| parse(&config).unwrap());
    let variations = |c: &HfConfig| {
        let Layer { mixer, mlp, .. } = &*c.layers[0];
        let attention = mixer.attention().unwrap();
        let norm = attention.q_norm.is_some() && attention.k_norm.is_some();
        let q = attention.qkv.linears().next().unwrap();
        (c.model_type, q.bias, attention.o.bias, mlp.gated().unwrap().down.bias, norm)
    };
    assert_eq!(variations(&qwen2), ("qwen2", true, false, false, false));
    assert_eq!(variations(&qwen3), ("qwen3", false, false, false, true));
    assert_eq!(variations(&llama), ("llama", false, false, false, false));
    let heads = [&qwen2, &qwen3, &llama].map(|c| c.heads().dim);
    assert_eq!(heads, [64, 128, 64]);
    let biased = json!({"attention_bias": true, "mlp_bias": true});
    let biased = parse(&with(&self::llama(), &biased)).unwrap();
    assert_eq!(variations(&biased), ("llama", true, true, true, false));
    assert!(HfConfig::FAMILIES.is_sorted() && HfConfig::FAMILIES.contains(&"llama"));
}

#[test]
fn missing_keys_mean_what_they_mean_to_transformers() {
    let gone = json!({
        "head_dim": null, "rope_theta": null, "rope_scaling": null, "tie_word_embeddings": null,
        "rms_norm_eps": null, "hidden_act": null, "intermediate_size": null, "vocab_size": null,
        "max_position_embeddings": null
    });
    for (base, head_dim, sizes) in [
        (qwen2(), 64, [22_016, 151_936, 32_768]),
        (qwen3(), 128, [22_016, 151_936, 32_768]),
        (llama(), 64, [11_008, 32_000, 2048]),
    ] {
        let config = parse(&with(&base, &gone)).unwrap();
        assert_eq!(config.heads().dim, head_dim);
        let intermediate = config.layers[0].mlp.gated().unwrap().width;
        let found = [intermediate, config.vocab_size, config.max_position_embeddings];
        assert_eq!(found, sizes);
        assert_eq!(config.ropes, [Rope::plain(10_000.0)]);
        assert_eq!((config.tie_word_embeddings, config.norm.eps), (false, 1e-6));
    }
    for name in ["llama", "qwen2", "qwen3"] {
        let config = parse(&json!({"model_type": name})).unwrap();
        let heads = config.heads();
        assert_eq!([config.hidden_size, config.layers.len()], [4096, 32]);
        assert_eq!([heads.q, heads.kv], [32, 32]);
    }
}

#[test]
fn missing_key_value_heads_are_thirty_two_for_qwen_and_all_heads_for_llama() {
    let gone = json!({"num_key_value_heads": null});
    for base in [qwen2(), qwen3()] {
        let heads = &base["num_attention_heads"];
        let name = &base["model_type"];
        let message = refused(&with(&base, &gone));
        let expected = format!(
            "`num_key_value_heads` is missing, which means 32 for {name}, and `num_attention_heads` \
             ({heads}) is not a multiple of that; write `num_key_value_heads`"
        );
        assert!(message.ends_with(&expected), "{message}");
        let mut many = with(&base, &gone);
        many["num_attention_heads"] = 64.into();
        assert_eq!(parse(&many).unwrap().heads().kv, 32);
    }
    assert_eq!(parse(&with(&llama(), &gone)).unwrap().heads().kv, 32);
    let mut few = with(&llama(), &gone);
    few["num_attention_heads"] = 16.into();
    assert_eq!(parse(&few).unwrap().heads().kv, 16);
    // Null is as many as there are heads, in every family.
    for mut config in [qwen2(), qwen3(), llama()] {
        config["num_key_value_heads"] = Value::Null;
        let heads = parse(&config).unwrap().heads();
        assert_eq!(heads.kv, heads.q);
    }
}

#[test]
fn null_is_refused_where_transformers_refuses_it() {
    let refused_in = [
        ("hidden_size", "qwen2 qwen3 llama"),
        ("num_hidden_layers", "qwen2 qwen3 llama"),
        ("num_attention_heads", "qwen2 qwen3 llama"),
        ("intermediate_size", "qwen2 qwen3 llama"),
        ("vocab_size", "qwen2 qwen3 llama"),
        ("max_position_embeddings", "qwen2 qwen3 llama"),
        ("rms_norm_eps", "qwen2 qwen3 llama"),
        ("hidden_act", "qwen2 qwen3 llama"),
        ("tie_word_embeddings", "qwen2 qwen3 llama"),
        ("rope_theta", "qwen2 qwen3 llama"),
        ("head_dim", "qwen2 qwen3"),
        ("attention_bias", "qwen3 llama"),
        ("mlp_bias", "llama"),
        ("use_sliding_window", "qwen2 qwen3"),
        ("sliding_window", ""),
        ("layer_types", ""),
        ("rope_parameters", ""),
        ("rope_scaling", ""),
        ("partial_rotary_factor", ""),
    ];
    for (key, families) in refused_in {
        for base in [qwen2(), qwen3(), llama()] {
            let family = base["model_type"].as_str().unwrap().to_owned();
            let mut config = base;
            config[key] = Value::Null;
            let found = parse(&config).err().map(|error| error.to_string());
            let expected = families.contains(&family);
            assert_eq!(found.is_some(), expected, "{family}, {key}: {found:?}");
            assert!(found.is_none_or(|text| text.contains(&format!("`{key}` is null"))), "{key}");
        }
    }
}

#[test]
fn the_original_context_is_the_one_beside_the_rope_then_the_one_within_then_the_context() {
    let key = "original_max_position_embeddings";
    let context = |config: &Value| {
        parse(config).map(|config| match config.ropes[0].scaling {
            Scaling::Llama3(llama3) => llama3.original_max_position_embeddings,
            _ => panic!("{:?}", config.ropes),
        })
    };
    let mut beside = llama();
    beside[key] = 4096.into();
    assert_eq!((context(&llama()), context(&beside)), (Ok(8192), Ok(4096)));
    let mut without = llama();
    without["rope_scaling"].as_object_mut().unwrap().shift_remove(key).unwrap();
    assert_eq!(context(&without), Ok(131_072));
    without[key] = 4096.into();
    assert_eq!(context(&without), Ok(4096));
    without[key] = Value::Null;
    assert!(refused(&without).contains(&format!("`{key}` is null")));
    // Without scaling nobody asks for it.
    let mut plain = qwen2();
    plain[key] = json!("any");
    assert_eq!(parse(&plain).unwrap().ropes[0].scaling, Scaling::None);
    let mut null = llama();
    null["rope_scaling"]["rope_type"] = Value::Null;
    null["rope_scaling"]["type"] = "llama3".into();
    assert!(refused(&null).contains("`rope_scaling.rope_type` is null"));
}

#[test]
fn both_spellings_of_rope_are_read_and_must_agree() {
    let old = llama();
    let mut parameters = old["rope_scaling"].clone();
    parameters["rope_theta"] = old["rope_theta"].clone();
    let moved = json!({"rope_parameters": parameters, "rope_scaling": null, "rope_theta": null});
    let new = with(&old, &moved);
    let llama3 = Llama3 {
        factor: 32.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 8192,
    };
    let expected = [Rope { scaling: Scaling::Llama3(llama3), ..Rope::plain(500_000.0) }];
    assert_eq!(parse(&old).unwrap().ropes, expected);
    assert_eq!(parse(&new).unwrap().ropes, expected);
    // The oldest spelling of the type, and both spellings at once.
    let mut oldest = old.clone();
    let kind = oldest["rope_scaling"].as_object_mut().unwrap().shift_remove("rope_type").unwrap();
    oldest["rope_scaling"]["type"] = kind;
    assert_eq!(parse(&oldest).unwrap().ropes, expected);
    let both = with(&new, &json!({"rope_theta": 500_000}));
    assert_eq!(parse(&both).unwrap().ropes, expected);
    assert_eq!(
        refused(&with(&new, &json!({"rope_theta": 10_000}))),
        "config.json: `rope_theta` is 10000 and `rope_parameters.rope_theta` is 500000; keep one"
    );
    let two = with(&new, &json!({"rope_scaling": {"rope_type": "default"}}));
    assert!(refused(&two).contains("`rope_parameters` and `rope_scaling` are both there"));
}

#[test]
fn long_waves_are_stretched_and_short_ones_are_not() {
    let rope = parse(&llama()).unwrap().ropes.remove(0);
    let plain = Rope::plain(rope.theta).frequencies(64).inv_freq;
    let scaled = rope.frequencies(64).inv_freq;
    for (plain, scaled) in plain.iter().zip(&scaled) {
        let wave = 2.0 * std::f32::consts::PI / plain;
        let ratio = plain / scaled;
        match wave {
            wave if wave < 8192.0 / 4.0 => assert_eq!(plain, scaled),
            wave if wave > 8192.0 => assert_eq!(ratio, 32.0),
            _ => assert!(ratio > 1.0 && ratio < 32.0, "{ratio}"),
        }
    }
    assert_eq!(plain[0], 1.0);
    assert_eq!(scaled.len(), 32);
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let cases = [
        (
            json!({"model_type": "mixtral"}),
            r#"`model_type` is "mixtral"; supported: "gemma2", "gemma3", "gemma3_text", "gpt_oss", "lfm2", "llama", "#,
        ),
        (json!({"model_type": null}), r#"`model_type` is missing; supported: "gemma2", "gemma3""#),
        (
            json!({"num_experts": 128}),
            "`num_experts` is 128; mixtures of experts of this family are not supported",
        ),
        (
            json!({"quantization_config": {"quant_method": "gptq"}}),
            "`quantization_config` is an object; weights of f32, f16 and bf16 are supported",
        ),
        (json!({"hidden_act": "gelu"}), r#"`hidden_act` is "gelu"; supported: "silu""#),
        (
            json!({"use_sliding_window": true, "max_window_layers": "some"}),
            r#"`max_window_layers` is "some"; a whole number is needed"#,
        ),
        (
            json!({"layer_types": vec!["sliding_attention"; 24]}),
            r#"`layer_types` has "sliding_attention", and `use_sliding_window` is not true"#,
        ),
        (
            json!({"layer_types": vec!["linear_attention"; 24]}),
            r#"`layer_types` has "linear_attention"; supported: "full_attention", "sliding_attention""#,
        ),
        (
            json!({"layer_types": ["full_attention"]}),
            "`layer_types` has 1 entries, `num_hidden_layers` is 24; write one for each layer",
        ),
        (
            json!({"rope_scaling": {"rope_type": "proportional", "factor": 4.0}}),
            r#"`rope_scaling.rope_type` is "proportional"; supported: "default", "dynamic", "linear", "llama3", "#,
        ),
        (
            json!({"rope_scaling": {"type": "linear"}}),
            "`rope_scaling.factor` is missing; a positive number is needed",
        ),
        (
            json!({"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [2.0]}}),
            "`short_factor` of the rope has 1 entries; 32 are needed",
        ),
        (
            json!({"rope_scaling": {"type": "longrope", "short_factor": [0], "long_factor": [2.0]}}),
            "`rope_scaling.short_factor` is a list; a list of positive numbers is needed",
        ),
        (
            json!({"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}),
            "`rope_parameters.full_attention` is an object; one rope for all layers is supported",
        ),
        (
            json!({"rope_scaling": {"rope_type": "llama3", "factor": 8}}),
            "`rope_scaling.low_freq_factor` is missing; a positive number is needed",
        ),
        (json!({"partial_rotary_factor": 0.5}), "`partial_rotary_factor` is 0.5; supported: 1"),
        (
            json!({"num_key_value_heads": 3}),
            "`num_attention_heads` (14) is not a multiple of `num_key_value_heads` (3)",
        ),
        (json!({"head_dim": 63}), "`head_dim` is 63; rotary heads have an even width"),
        (json!({"head_dim": 1_048_576}), "are wider than 1048576"),
        (
            json!({"hidden_size": 900}),
            "`head_dim` is missing, and `hidden_size` (900) is not a multiple of `num_attention_heads` (14)",
        ),
        (
            json!({"num_hidden_layers": 4_294_967_296_u64}),
            "`num_hidden_layers` is 4294967296; a whole number from 1 to 1024 is needed",
        ),
        (json!({"vocab_size": 0}), "`vocab_size` is 0; a whole number from 1 to"),
        (json!({"hidden_size": "896"}), r#"`hidden_size` is "896"; a whole number from 1 to"#),
        (
            json!({"tie_word_embeddings": "yes"}),
            r#"`tie_word_embeddings` is "yes"; true or false is needed"#,
        ),
        (json!({"rms_norm_eps": -1}), "`rms_norm_eps` is -1; a positive number is needed"),
        (json!({"rms_norm_eps": 1e39}), "; a positive number from 1.5e-45 to 3.4e38 is needed"),
        (json!({"rms_norm_eps": 1e-50}), "`rms_norm_eps` is 1e-50; a positive number from"),
        (json!({"rope_theta": 1e300}), "`rope_theta` is 1e"),
        (
            json!({"rope_scaling": {"rope_type": "linear", "factor": 1e40}}),
            "`rope_scaling.factor` is 1e",
        ),
        (
            json!({"rope_scaling": {"rope_type": "linear", "factor": 1e-44}}),
            "the values of `rope_theta`, `rope_parameters` or `rope_scaling` give frequencies",
        ),
        (
            json!({"rope_scaling": {
                "rope_type": "longrope", "short_factor": vec![1e39; 32], "long_factor": vec![1.0; 32],
            }}),
            "`rope_scaling.short_factor` is a list; a list of positive numbers from",
        ),
        (
            json!({"model_type": "mistral3"}),
            "`model_type` is \"mistral3\"; the configuration of its decoder is needed, an object `text_config`",
        ),
    ];
    for (change, expected) in cases {
        let error = refused(&with(&qwen2(), &change));
        assert!(error.contains(expected), "{error:?} does not say {expected:?}");
    }
    for (text, expected) in
        [("", "not JSON"), ("[]", "not a JSON object"), ("{\"a\": ", "not JSON")]
    {
        let error = HfConfig::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error:?} does not say {expected:?}");
    }
}

#[test]
fn a_window_that_no_layer_uses_is_no_obstacle() {
    let unused = [
        json!({"use_sliding_window": true, "max_window_layers": 24}),
        json!({"use_sliding_window": true, "layer_types": vec!["full_attention"; 24]}),
        json!({"use_sliding_window": false, "max_window_layers": 0}),
    ];
    for change in unused {
        parse(&with(&qwen2(), &change)).unwrap();
    }
    let mut null = with(&qwen2(), &json!({"use_sliding_window": true, "max_window_layers": 0}));
    null["sliding_window"] = Value::Null;
    parse(&null).unwrap();
}

#[test]
fn every_problem_is_reported_at_once() {
    let bad = json!({
        "model_type": "mixtral", "num_local_experts": 8, "hidden_act": "gelu", "vocab_size": "many",
        "quantization_config": {}, "rope_scaling": {"rope_type": "spiral"}, "hidden_size": -1
    });
    let found = refused(&with(&qwen2(), &bad));
    let (family, others) = found.split_once("; `quantization_config`").unwrap();
    let supported =
        family.strip_prefix("config.json: `model_type` is \"mixtral\"; supported: ").unwrap();
    assert!(HfConfig::FAMILIES.iter().all(|name| supported.contains(&format!("{name:?}"))));
    assert_eq!(
        others,
        " is an object; weights of f32, f16 and bf16 are \
         supported; `num_local_experts` is 8; mixtures of experts of this family are not supported; \
         `hidden_act` is \"gelu\"; supported: \"silu\"; `hidden_size` is -1; a whole number from 1 to 1048576 is \
         needed; `vocab_size` is \"many\"; a whole number from 1 to 16777216 is needed; \
         `rope_scaling.rope_type` is \"spiral\"; supported: \"default\", \"dynamic\", \"linear\", \"llama3\", \
         \"longrope\", \"yarn\""
    );
}

#[test]
fn damaged_configurations_are_errors_or_work_and_cost_what_their_file_costs() {
    let more = [
        "gemma3",
        "olmo3",
        "phi3",
        "smollm3",
        "ministral3",
        "qwen3_5",
        "lfm2",
        "qwen3_moe",
        "qwen3_5_moe",
        "gpt_oss",
    ]
    .map(|name| std::fs::read(fixture("families").join(name).join("config.json")).unwrap());
    let files = [qwen2(), qwen3(), llama()].map(|config| format!("{config:#}").into_bytes());
    let files: Vec<Vec<u8>> = files.into_iter().chain(more).collect();
    fuzz("config.json", &files, 64, |file| match HfConfig::parse(file) {
        Ok(config) => {
            let Rope { theta, .. } = config.ropes[0];
            let dim = config.heads().dim;
            assert!(theta > 0.0 && dim >= 2);
            // A head may be as wide as the limit: its frequencies are computed for a model that exists.
            dim > 4096 || config.frequencies()[0].inv_freq.len() == dim / 2
        }
        Err(error) => {
            assert!(error.to_string().len() < 4096, "{} bytes of message", error.to_string().len());
            false
        }
    });
}

#[test]
fn keys_of_other_families_that_change_the_numbers_are_a_warning() {
    let gemma2 = json!({
        "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 256,
        "sliding_window": 4096, "hidden_activation": "gelu_pytorch_tanh"
    });
    let gemma3 = json!({"sliding_window_pattern": 6, "rope_local_base_freq": 10_000.0});
    let olmo3: Vec<&str> =
        (0..16).map(|n| if n % 4 == 3 { "full_attention" } else { "sliding_attention" }).collect();
    for (base, changes, keys) in [
        (
            llama(),
            gemma2,
            vec![
                "`sliding_window` (4096)",
                "`attn_logit_softcapping` (50.0)",
                "`final_logit_softcapping` (30.0)",
                "`query_pre_attn_scalar` (256)",
                "`hidden_activation` (\"gelu_pytorch_tanh\")",
            ],
        ),
        (qwen3(), gemma3, vec!["`sliding_window_pattern` (6)", "`rope_local_base_freq` (10000.0)"]),
        (llama(), json!({ "layer_types": olmo3 }), vec!["`layer_types` (a list)"]),
        (
            llama(),
            json!({"no_rope_layers": [1, 1, 1, 0], "no_rope_layer_interval": 4}),
            vec!["`no_rope_layers` (a list)"],
        ),
        (llama(), json!({"no_rope_layer_interval": 4}), vec!["`no_rope_layer_interval` (4)"]),
        (llama(), json!({"sliding_window": 4096}), vec!["`sliding_window` (4096)"]),
        (
            llama(),
            json!({"attention_multiplier": 0.015_625, "logits_scaling": 8.0}),
            vec!["`attention_multiplier` (0.015625)", "`logits_scaling` (8.0)"],
        ),
        (
            llama(),
            json!({"scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256}),
            vec!["`scale_emb` (12)", "`scale_depth` (1.4)", "`dim_model_base` (256)"],
        ),
        (
            qwen2(),
            json!({"clip_qkv": 8.0, "use_parallel_residual": true}),
            vec!["`clip_qkv` (8.0)", "`use_parallel_residual` (true)"],
        ),
        (
            qwen2(),
            json!({"rope_scaling": {"rope_type": "default", "attention_factor": 0.8, "mscale": 1.0}}),
            vec!["`rope_scaling.attention_factor` (0.8)"],
        ),
    ] {
        let config = parse(&with(&base, &changes)).unwrap();
        assert_eq!(config.unread, keys, "{changes}");
        let warning = config.warning().unwrap();
        let start = format!("config.json has {}", keys.join(", "));
        assert!(warning.starts_with(&start) && warning.contains("does not read"), "{warning}");
    }
}

#[test]
fn values_of_such_keys_that_change_nothing_are_no_warning() {
    let full = vec!["full_attention"; 16];
    let neutral = json!({
        "no_rope_layers": vec![1; 16], "no_rope_layer_interval": 4, "sliding_window": 131_072, "layer_types": full,
        "attn_logit_softcapping": 0, "query_pre_attn_scalar": 64, "attention_multiplier": 0.125, "clip_qkv": false,
        "embedding_multiplier": 1.0, "hidden_activation": "silu", "use_qk_norm": false, "logit_scale": 1
    });
    let mut with_nulls = with(&llama(), &neutral);
    with_nulls["final_logit_softcapping"] = Value::Null;
    with_nulls["rope_scaling"]["attention_factor"] = 1.0.into();
    for config in [qwen2(), qwen3(), llama(), with_nulls] {
        let config = parse(&config).unwrap();
        assert_eq!((config.unread.as_slice(), config.warning()), (&[] as &[String], None));
    }
}
