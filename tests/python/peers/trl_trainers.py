"""Steps of TRL's trainers, with their own defaults but for checkpoints of activations, which would make them slower."""

import statistics

from datasets import Dataset
from measure import Watch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, TrainerCallback
from transformers.trainer_callback import PrinterCallback, ProgressCallback
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer
from work import GROUP, PROMPT, REPLY, ROWS, SHAPES, random_ids


class StepTimes(TrainerCallback):
    """A callback that measures each step after the first."""

    def __init__(self):
        self.watch = Watch()

    def on_step_end(self, *args, **kwargs):
        if self.watch.began:
            self.watch.stop()
        self.watch.start()


def tokenizer(vocab):
    """Returns a tokenizer of words `t3`, `t4`, ..., each of which is a token, so that lengths are exact."""
    special = {"<pad>": 0, "<eos>": 1, "<unk>": 2}
    words = special | {f"t{i}": i for i in range(3, vocab)}
    tokens = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokens.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokens, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def odd_share(completion_ids, **others):
    """Returns the reward of each reply: the share of odd ids."""
    return [sum(i % 2 for i in ids) / len(ids) for ids in completion_ids]


def settings(args, directory):
    """Returns the settings of both trainers. The first step is not counted."""
    return {
        "output_dir": directory,
        "use_cpu": True,
        "bf16": args.dtype != "f32",
        "per_device_train_batch_size": args.micro_rows,
        "gradient_accumulation_steps": ROWS // args.micro_rows,
        "learning_rate": 1e-5,
        "max_steps": args.repeats + 1,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }


def train(trainer, times):
    """Trains without printing."""
    trainer.add_callback(times)
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    trainer.train()
    return times.watch


def grpo_steps(args, model, directory):
    """Measures steps of GRPO. Returns the watch, and the mean number of tokens of a reply."""
    vocab = SHAPES[args.size].vocab
    rows = random_ids(ROWS // GROUP * (args.repeats + 1), PROMPT, vocab)
    data = Dataset.from_dict({"prompt": [" ".join(f"t{i}" for i in row) for row in rows]})
    config = GRPOConfig(**settings(args, directory), num_generations=GROUP, max_completion_length=REPLY, beta=0.0, temperature=1.0)
    trainer = GRPOTrainer(
        model=model, args=config, reward_funcs=odd_share, train_dataset=data, processing_class=tokenizer(vocab)
    )
    watch = train(trainer, StepTimes())
    lengths = [entry["completions/mean_length"] for entry in trainer.state.log_history if "completions/mean_length" in entry]
    return watch, statistics.mean(lengths)


def sft_steps(args, model, directory):
    """Measures steps of supervised training. Returns the watch."""
    vocab = SHAPES[args.size].vocab
    data = Dataset.from_dict({"input_ids": random_ids(ROWS * (args.repeats + 1), PROMPT + REPLY, vocab)})
    config = SFTConfig(**settings(args, directory), max_length=PROMPT + REPLY, packing=False)
    trainer = SFTTrainer(model=model, args=config, train_dataset=data, processing_class=tokenizer(vocab))
    return train(trainer, StepTimes())
