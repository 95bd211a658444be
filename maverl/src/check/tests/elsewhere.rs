//! Keys of other systems, and unknown keys within options.

use super::*;

/// Keys of the files and scripts of systems whose users come here.
const SYSTEMS: [(&str, &str); 6] = [
    (
        "Dr. MAS: ppo_trainer.yaml, run_math.sh, run_search.sh",
        "data.train_files data.val_files data.prompt_key data.reward_fn_key data.max_prompt_length data.max_response_length \
         data.train_batch_size data.val_batch_size data.filter_overlong_prompts data.truncation data.shuffle \
         data.apply_chat_template_kwargs actor_rollout_ref.model.enable_gradient_checkpointing \
         actor_rollout_ref.model.use_remove_padding actor_rollout_ref.model.lora_rank actor_rollout_ref.model.lora_alpha \
         actor_rollout_ref.model.target_modules actor_rollout_ref.actor.ppo_mini_batch_size \
         actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu actor_rollout_ref.actor.use_adaptive_ppo_mini_batch_size \
         actor_rollout_ref.actor.ppo_mini_update_num actor_rollout_ref.actor.use_dynamic_bsz \
         actor_rollout_ref.actor.ppo_max_token_len_per_gpu actor_rollout_ref.actor.grad_clip actor_rollout_ref.actor.clip_ratio \
         actor_rollout_ref.actor.clip_ratio_low actor_rollout_ref.actor.clip_ratio_high actor_rollout_ref.actor.clip_ratio_c \
         actor_rollout_ref.actor.loss_agg_mode actor_rollout_ref.actor.entropy_coeff \
         actor_rollout_ref.actor.use_invalid_action_penalty actor_rollout_ref.actor.invalid_action_penalty_coef \
         actor_rollout_ref.actor.use_kl_loss actor_rollout_ref.actor.kl_loss_coef actor_rollout_ref.actor.kl_loss_type \
         actor_rollout_ref.actor.ppo_epochs actor_rollout_ref.actor.optim.lr \
         actor_rollout_ref.actor.optim.lr_warmup_steps actor_rollout_ref.actor.optim.lr_warmup_steps_ratio \
         actor_rollout_ref.actor.optim.warmup_style actor_rollout_ref.actor.optim.weight_decay \
         actor_rollout_ref.actor.fsdp_config.param_offload actor_rollout_ref.actor.fsdp_config.optimizer_offload \
         actor_rollout_ref.rollout.name actor_rollout_ref.rollout.temperature actor_rollout_ref.rollout.top_p \
         actor_rollout_ref.rollout.top_k actor_rollout_ref.rollout.n actor_rollout_ref.rollout.gpu_memory_utilization \
         actor_rollout_ref.rollout.tensor_model_parallel_size actor_rollout_ref.rollout.enforce_eager \
         actor_rollout_ref.rollout.free_cache_engine actor_rollout_ref.rollout.enable_chunked_prefill \
         actor_rollout_ref.rollout.val_kwargs.temperature actor_rollout_ref.rollout.val_kwargs.do_sample \
         actor_rollout_ref.rollout.val_kwargs.n actor_rollout_ref.rollout.multi_turn.enable \
         actor_rollout_ref.rollout.multi_turn.max_turns critic.optim.lr critic.cliprange_value algorithm.gamma algorithm.lam \
         algorithm.adv_estimator algorithm.norm_adv_by_std_in_grpo algorithm.use_kl_in_reward algorithm.kl_penalty \
         algorithm.kl_ctrl algorithm.gigpo.step_advantage_w algorithm.gigpo.mode algorithm.filter_groups.enable \
         algorithm.filter_groups.max_num_gen_batches algorithm.group_by_agent_id trainer.total_epochs \
         trainer.total_training_steps trainer.project_name trainer.experiment_name trainer.logger trainer.rollout_data_dir \
         trainer.validation_data_dir trainer.nnodes trainer.n_gpus_per_node trainer.save_freq trainer.test_freq \
         trainer.resume_mode trainer.resume_from_path trainer.val_before_train trainer.val_only trainer.critic_warmup \
         trainer.default_local_dir trainer.max_actor_ckpt_to_keep agent.multi_agent agent.agent_ids agent.model_ids \
         agent.model_sharing agent.orchestra_type agent.orchestra.math.max_loop_num agent.agent_specific_parameters \
         agent.use_agent_memory env.env_name env.seed env.max_steps env.history_length env.rollout.n env.rollout.val_n \
         env.search.search_url",
    ),
    (
        "MAPoRL: config/ppo_config",
        "server_dict reload reload_dir agent_num round_num turn_based_training policy_separation collaboration_separation \
         task_training rule_horizon rule_agent_share rule_discount value_simplification num_mini_batches total_episodes \
         local_rollout_forward_batch_size num_sample_generations num_ppo_epochs vf_coef kl_coef per_device_train_batch_size \
         gradient_accumulation_steps dataset_name base_model sft_model_path stop_token max_input_length min_output_length \
         max_output_length peft peft_config reward_model_dir reward_baseline penalty_reward_value non_eos_penalty \
         non_box_penalty score_penalty_for_nonvalid reward_feedback no_reward_model answer_detecting learning_rate adafactor \
         early_stopping half_precision_backend fp16 bf16 load_in_8bit adam_beta1 adam_beta2 warmup_steps eval_batch_size \
         evaluation_strategy eval_steps logging_strategy logging_steps save_strategy save_steps test_len \
         criteria_for_consensus_percentage criteria_for_consensus_reward_threshold output_dir report_to deepspeed run_name \
         random_seed alpha",
    ),
    (
        "MARFT: marft/config.py, and multi_agent of its successor",
        "algorithm_name normalization_mode agent_iteration_interval experiment_name cuda cuda_deterministic \
         n_training_threads n_rollout_threads n_eval_rollout_threads num_env_steps horizon env_name dataset_name dataset_path \
         model_name_or_path max_new_tokens n_agents profile_path context_window use_vllm multi_gpu episode_length warmup_steps \
         lr critic_lr opti_eps weight_decay gradient_cp_steps ppo_epoch use_clipped_value_loss clip_param num_mini_batch \
         entropy_coef value_loss_coef use_max_grad_norm max_grad_norm use_gae gamma gae_lambda use_huber_loss huber_delta \
         use_linear_lr_decay save_interval log_interval use_eval eval_interval eval_episodes multi_agent.role_names \
         multi_agent.role_configs multi_agent.graph_type multi_agent.graph_config multi_agent.transition_messages \
         multi_agent.credit_strategy multi_agent.credit_discount multi_agent.step_reward_fn use_multi_lora shared_lora \
         independent_critic share_critic",
    ),
    (
        "siiRL: siirl/params, workflow_marft.yaml",
        "dag.workflow_path dag.custom_pipeline_fn algorithm.adv_estimator algorithm.share_reward_in_agent \
         actor_rollout_ref.rollout.multi_turn.max_assistant_turns actor_rollout_ref.rollout.multi_turn.use_all_traj \
         rollout.agent.rewards_with_env node_id node_type node_role only_forward_compute agent_group dependencies \
         executable_ref filter_plugin retry_limit agent_options agent_options.agent_name agent_options.process_path \
         agent_options.pre_process_kwargs agent_options.post_process_kwargs agent_options.obs_with_env agent_options.env_path \
         agent_options.share_instance agent_options.train_cycle actor_rollout_ref.actor.policy_drift_coeff \
         actor_rollout_ref.actor.use_cpgd_loss algorithm.weight_factor_in_cpgd",
    ),
    (
        "MRLM: training_config.py and its YAML files",
        "experiment_name description tags output_dir training.algorithm training.num_epochs training.num_iterations \
         training.batch_size training.mini_batch_size training.learning_rate training.max_grad_norm training.optimizer \
         training.weight_decay training.adam_beta1 training.adam_beta2 training.adam_epsilon training.lr_scheduler \
         training.warmup_steps training.num_rollouts_per_iteration training.episodes_per_iteration \
         training.max_episode_length training.eval_every training.eval_episodes training.save_every \
         training.checkpoint_dir training.save_total_limit training.log_every training.log_dir training.wandb_project \
         training.wandb_entity training.wandb_run_name training.use_tensorboard training.seed training.use_fp16 \
         training.use_bf16 training.gradient_accumulation_steps ppo.clip_range ppo.clip_range_vf ppo.gamma ppo.gae_lambda \
         ppo.num_ppo_epochs ppo.value_loss_coef ppo.entropy_coef ppo.target_kl ppo.normalize_advantages grpo.group_size \
         grpo.normalize_rewards grpo.reward_normalization grpo.temperature grpo.num_grpo_epochs grpo.value_clip_range \
         dpo.beta dpo.reference_free dpo.label_smoothing dpo.loss_type sft.mode sft.bc_weight sft.world_model_weight \
         sft.filter_low_reward sft.min_reward_threshold sft.collect_every sft.max_trajectories model.model_name_or_path \
         model.model_type model.tokenizer_name_or_path model.trust_remote_code model.use_flash_attention \
         model.gradient_checkpointing model.load_in_8bit model.load_in_4bit model.use_lora model.lora_r model.lora_alpha \
         model.lora_dropout model.lora_target_modules model.max_new_tokens model.temperature model.top_p model.top_k \
         model.do_sample model.num_beams model.repetition_penalty model.length_penalty model.device model.device_map \
         model.torch_dtype policy_env eval_envs env_type remote server_address reward_scale reward_clip reward_bias \
         custom_class custom_kwargs max_turns difficulty_range distributed distributed.backend distributed.num_gpus \
         distributed.gpu_ids distributed.num_nodes distributed.node_rank distributed.master_addr distributed.master_port \
         distributed.strategy distributed.fsdp_sharding_strategy distributed.fsdp_cpu_offload \
         distributed.deepspeed_config distributed.zero_stage output.save_dir output.log_interval output.eval_interval \
         output.save_interval",
    ),
    (
        "MAVERL: its readme, which is that of verl's recipe for SPIN",
        "algorithm.dpo_beta algorithm.dpo_loss_type trainer.ref_update_freq actor_rollout_ref.model_path data.train_files \
         reward_model runner learner",
    ),
];

/// The answers to these keys: a line for each, with the key and what `check` says of it.
const ANSWERS: &str = include_str!("elsewhere.txt");

/// What is recorded of a key without an answer.
const NOTHING: &str = "nothing";

/// Returns what `check` says of a key that a user writes as it is in another system.
fn answer(key: &str) -> String {
    let found = problems(&text(&format!("{key} = 1\n")), &search());
    let words = found.split_whitespace().filter(|word| !["|", "`----"].contains(word));
    let found = words.collect::<Vec<_>>().join(" ");
    let help = found.split("help: ").nth(1).unwrap_or(NOTHING);
    help.split(" x ").next().unwrap_or_default().trim().to_owned()
}

#[test]
fn every_key_of_the_systems_whose_users_come_is_answered_as_recorded() {
    let keys = SYSTEMS.iter().flat_map(|(_, keys)| keys.split_whitespace());
    let keys: Vec<&str> = keys.collect();
    if std::env::var_os("WRITE_BOOK").is_some() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let lines: String = keys.iter().map(|key| format!("{key} -> {}\n", answer(key))).collect();
        std::fs::write(path.join("src/check/tests/elsewhere.txt"), lines).unwrap();
        return;
    }
    let recorded: Vec<(&str, &str)> =
        ANSWERS.lines().map(|line| line.split_once(" -> ").unwrap()).collect();
    assert_eq!(recorded.iter().map(|(key, _)| *key).collect::<Vec<_>>(), keys);
    // Each key is named itself, by what it is here or by what there is in its place.
    for (key, answer) in &recorded {
        let last = key.rsplit('.').next().unwrap();
        let names = [format!("`{key}`"), format!("`{last}`"), format!(".{last}`")];
        // A key of the table that was meant is right there.
        let is_meant = *answer == "did you mean `models`?";
        let is_table = key.contains('.') && !is_meant;
        let is_named = names.iter().any(|name| answer.contains(name));
        let is_answer = *answer != NOTHING && !answer.starts_with("its keys are");
        assert!(is_answer && (is_named || !is_table), "{key}: {answer}");
    }
    // Each takes a check of its own: the second tier has all of them.
    let stride = if std::env::var_os("MAVERL_FULL").is_some() { 1 } else { 20 };
    for (key, recorded) in recorded.iter().step_by(stride) {
        assert_eq!(answer(key), *recorded, "{key}: look at the answer, then run with WRITE_BOOK=1");
    }
}

#[test]
fn a_table_of_another_system_is_answered_key_by_key() {
    let file = "\
[env]
max_steps = 4
env_name = \"search\"
rollout.n = 8
[training]
num_epochs = 3
learning_rate = 1e-5
[agent]
agent_ids = [\"Solver Agent\"]
model_sharing = false
orchestra.math.max_loop_num = 2
[dpo]
dpo_beta = 0.1
loss_type = \"hinge\"
[[eval_envs]]
env_type = \"math\"
[trainer]
ref_update_freq = 5
[multi_turn]
max_assistant_turns = 3
[distributed]
strategy = \"fsdp\"
";
    let found = problems(&text(file), &search());
    let found = found.split_whitespace().filter(|word| *word != "|").collect::<Vec<_>>().join(" ");
    for part in [
        "`env.max_steps`: `max_turns`, an option of the orchestra: `maverl list`",
        "`env.env_name` is `environment.name`",
        "`env.rollout.n` is `task.group_size`",
        "`training.num_epochs` is `steps`;",
        "`training.learning_rate` is `models.NAME.optim.lr`",
        "did you mean `agents`? `agent.agent_ids`: the agents are those of the orchestra",
        "`agent.model_sharing` is `agents.NAME.worker_group`",
        "`agent.orchestra.math.max_loop_num`: `max_rounds`, an option of the orchestra `math/refine`",
        "`dpo.dpo_beta` is `algorithm.preference.beta`",
        "`dpo.loss_type` is `algorithm.preference.loss`",
        "`eval_envs` is `eval.data` here",
        "`trainer.ref_update_freq` is `algorithm.reference.every`",
        "`multi_turn.max_assistant_turns`: turns are an option of the orchestra",
        "`distributed.strategy`: a launcher starts one process for each device",
    ] {
        assert!(found.contains(part), "{part}: {found}");
    }
}

#[test]
fn a_key_of_another_system_is_answered_where_it_is_written() {
    for (toml, part) in [
        ("agent_num = 2", "`debaters`, an option of the orchestra `debate/rounds`"),
        ("round_num = 3", "`rounds`, an option of the orchestra `debate/rounds`"),
        (
            "[algorithm]\ngroup_by_agent_id = true",
            "`algorithm.group_by_agent_id` is `algorithm.advantage.by`",
        ),
        ("[algorithm]\nshare_reward_in_agent = true", "is `algorithm.future_rewards` here"),
        ("[algorithm]\nrule_discount = 0.3", "is `algorithm.future_rewards.discount` here"),
        ("[algorithm]\ndpo_beta = 0.1", "is `algorithm.preference.beta` here"),
        ("[orchestra]\nname = \"search/route\"\nagent_num = 2", "`debaters`, an option"),
        (
            "[orchestra]\nname = \"search/route\"\nmax_steps = 2",
            "`max_turns`, an option of the orchestra",
        ),
        (
            "[orchestra]\nname = \"search/route\"\ninfluence_reward = [0.1, 0.1, 0.1, 0.1]",
            "`influence_reward` is `algorithm.influence.follow` and `algorithm.influence.resist` and",
        ),
        ("[task]\ntrain_files = \"x\"", "`train_files` is `task.data` here"),
        (
            "[models.tiny]\npath = \"builtin:tiny\"\nlora_rank = 8",
            "is `models.tiny.lora.rank` here",
        ),
    ] {
        let found = problems(&text(toml), &search());
        assert!(found.contains(part), "{toml}: {found}");
    }
}

#[test]
fn every_unknown_key_of_every_node_is_reported_where_it_is() {
    let toml = "\
[[orchestra.nodes]]
id = \"a\"
node_role = \"ROLLOUT\"
agent_group = 0
[[orchestra.nodes]]
id = \"b\"
aftr = [\"a\"]
dependencies = [\"a\"]
train_cycle = 15
";
    let yaml = "orchestra:\n  nodes:\n  - {id: a, node_role: ROLLOUT, agent_group: 0}\n  - id: b\n    aftr: [a]\n    \
                    dependencies: [a]\n    train_cycle: 15\n";
    let graph = registry(&[
        Entry::agent::<Verifier>(HERE),
        Entry::orchestra::<Graph>(HERE),
        Entry::environment::<Library>(HERE),
    ]);
    for (name, file, places) in [
        ("run.toml", toml, [(3, 1), (4, 1), (7, 1), (8, 1), (9, 1)]),
        ("run.yaml", yaml, [(3, 13), (3, 33), (5, 5), (6, 5), (7, 5)]),
    ] {
        let file = File::Text { name: name.into(), text: file.into(), base: ".".into() };
        let found = problems(&Sources { file: Some(file), ..Sources::default() }, &graph);
        for (line, column) in places {
            assert!(found.contains(&format!("[{name}:{line}:{column}]")), "{found}");
        }
        for part in [
            "unknown key `orchestra.nodes[0].node_role`",
            "unknown key `orchestra.nodes[0].agent_group`",
            "`seat` of a node",
            "unknown key `orchestra.nodes[1].aftr`",
            "did you mean `after`?",
            "unknown key `orchestra.nodes[1].dependencies`",
            "`after` of a node",
            "unknown key `orchestra.nodes[1].train_cycle`",
        ] {
            assert!(found.contains(part), "{part}: {found}");
        }
    }
}
