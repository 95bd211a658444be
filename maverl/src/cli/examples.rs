//! Examples of each command, shown by `--help` and on the page of the command line in the book.

use clap::Command;

use crate::cli::terminal;
use crate::train::rename_program;

/// Example calls by command; a test verifies that each is accepted.
pub const EXAMPLES: [(&str, &[&str]); 35] = [
    ("new", &["maverl new my_team", "maverl new my_team --maverl ~/src/maverl"]),
    ("list", &["maverl list"]),
    (
        "examples",
        &[
            "maverl examples",
            "maverl examples example:single",
            "maverl examples example:program --write teams",
        ],
    ),
    (
        "explain",
        &[
            "maverl explain algorithm",
            "maverl explain algorithm dapo",
            "maverl explain clip_high",
            "maverl explain sampling",
            "maverl explain gdpo",
        ],
    ),
    ("schema", &["maverl schema"]),
    (
        "check",
        &[
            "maverl check run.toml",
            "maverl check run.toml --set task.group_size=4 --json",
            "maverl check run.toml --ranks 64 --device h100-80gb",
        ],
    ),
    (
        "train",
        &[
            "maverl train example:search_orchestra",
            "maverl train run.toml --quick",
            "maverl train run.toml --out runs/first --seed 1 --set models.tiny.optim.lr=1e-4",
            "maverl train --resume runs/first --steps 200",
            "maverl train stages.toml --out runs/hybrid",
            "maverl train run.toml --ranks-per-node 8",
            "maverl train run.toml --track mlflow --track wandb",
        ],
    ),
    (
        "launch",
        &[
            "maverl launch slurm run.toml --nodes 2 --gpus 8 --time 4:00:00 > run.sbatch",
            "maverl launch skypilot run.toml --nodes 2 --gpus 8 --gpu H100 --volume data > run.yaml",
            "maverl launch jobset run.toml --nodes 4 --gpus 1 --volume data > run.yaml",
        ],
    ),
    (
        "eval",
        &[
            "maverl eval run.toml",
            "maverl eval --run runs/first --checkpoint last --set eval.samples=8",
            "maverl eval --compare --run runs/first --json",
        ],
    ),
    ("info", &["maverl info runs/first", "maverl info"]),
    ("doctor", &["maverl doctor", "maverl doctor --json"]),
    ("runs", &["maverl runs", "maverl runs sweeps"]),
    (
        "track",
        &[
            "maverl track runs/first --to mlflow=http://127.0.0.1:5000",
            "maverl track runs/first --to wandb --track-python .venv/bin/python",
        ],
    ),
    (
        "replay",
        &[
            "maverl replay runs/first 12",
            "maverl replay runs/first 12/train-0001/3",
            "maverl replay runs/program 12/train-0001/3 --turns",
        ],
    ),
    (
        "view",
        &[
            "maverl view",
            "maverl view runs/first --port 8080",
            "maverl view runs/first --static first.html --episodes 100",
        ],
    ),
    (
        "show",
        &[
            "maverl show runs/first 12/train-0001/3",
            "maverl show runs/first 12 --worst 5",
            "maverl show runs/first 12/train-0001/3 --tokens --json",
        ],
    ),
    (
        "extract",
        &[
            "maverl extract runs/first metrics --out metrics.csv",
            "maverl extract runs/first turns --out turns.parquet",
            "maverl extract runs/first trace --out trace.json",
        ],
    ),
    (
        "generate",
        &[
            "maverl generate --model builtin:tiny --prompt 'Question: Who wrote Magdor?' --chat",
            "maverl generate --model models/qwen --prompt 'Once' --greedy --max-tokens 32 --json",
            "maverl generate --model models/qwen --prompt-ids 12522,5193,264 --max-tokens 32",
        ],
    ),
    ("score", &["maverl score --model builtin:tiny --input texts.jsonl --output scores.jsonl"]),
    (
        "grade",
        &[
            "maverl grade math --input answers.jsonl --output graded.jsonl --last-number",
            "maverl grade code --input programs.jsonl --output graded.jsonl --seconds 5",
        ],
    ),
    (
        "collect",
        &[
            "maverl collect --from runs/first --as sft,preference --solved --out data/first",
            "maverl collect --from runs/first --steps 10..=40 --seat search/verifier --as sft --out data/verifier",
            "maverl collect --run runs/first --checkpoint last --samples 16 --as verifier --test-share 0.1 --out data/v1",
            "maverl collect --from runs/first --as sft --format parquet --out data/rows",
        ],
    ),
    (
        "data",
        &[
            "maverl data hf:openai/gsm8k",
            "maverl data hf:me/mine:data/*.jsonl --key question=query",
            "maverl data questions.jsonl --rows 3",
        ],
    ),
    ("inspect", &["maverl inspect builtin:tiny", "maverl inspect models/qwen --json"]),
    (
        "export",
        &[
            "maverl export --run runs/first --out models/trained",
            "maverl export --run runs/first --policy judge --checkpoint last --out models/judge",
            "maverl export --model models/qwen --adapter adapters/a --merge --out models/merged",
            "maverl export --run runs/first --merge --out models/mine --push-to hf:me/mine --private",
            "maverl export --run runs/first --merge --gguf q8_0 --out models/mine.gguf",
            "maverl export --run runs/verifier --verifier --out verifiers/v1",
        ],
    ),
    ("new-model", &["maverl new-model --like bench-s --out models/blank --seed 1"]),
    (
        "serve model",
        &[
            "maverl serve model --run runs/first --checkpoint last",
            "maverl serve model --model models/qwen --adapter judge=adapters/judge --address 127.0.0.1:8000",
            "maverl serve model --model models/qwen --address 0.0.0.0:8000 --key-env SERVER_KEY",
        ],
    ),
    (
        "serve team",
        &[
            "maverl serve team --run runs/first --checkpoint last --show-turns",
            "maverl serve team run.toml --set rollout.timeout_s=60",
        ],
    ),
    ("serve environment", &["maverl serve environment run.toml --address 127.0.0.1:8000"]),
    (
        "serve reward",
        &[
            "maverl serve reward --judge math --address 127.0.0.1:8501",
            "maverl serve reward --model verifiers/v1 --address 127.0.0.1:8501",
        ],
    ),
    (
        "serve retriever",
        &["maverl serve retriever documents.jsonl --address 127.0.0.1:8000 --ranking bm25"],
    ),
    (
        "serve train",
        &[
            "maverl serve train --model hf:Qwen/Qwen3-0.6B --out runs/tinker --address 127.0.0.1:8000",
        ],
    ),
    ("bench", &["maverl bench kernels", "maverl bench rollout train --size M --dtype bf16"]),
    ("device compile", &["maverl device compile --arch sm_80,sm_90 --out target/release"]),
    (
        "device check",
        &[
            "maverl device check cuda --json > check.jsonl",
            "maverl device check emulated parity",
            "maverl device check candle:cpu",
        ],
    ),
    (
        "completions",
        &[
            "maverl completions bash > ~/.local/share/bash-completion/completions/maverl",
            "maverl completions zsh > ~/.zfunc/_maverl",
            "maverl completions fish > ~/.config/fish/completions/maverl.fish",
        ],
    ),
];

/// Returns the examples of a command, by the words that call it.
pub fn of(words: &str) -> &'static [&'static str] {
    EXAMPLES.iter().find(|(command, _)| *command == words).map_or(&[], |(_, examples)| *examples)
}

/// Adds the examples to the long help of each command, as calls of this program.
pub fn show_examples(command: Command, program: &str) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    names.iter().fold(command, |command, name| {
        command.mut_subcommand(name, |inner| match of(name) {
            [] => inner.mut_subcommands(|innermost| {
                let words = format!("{name} {}", innermost.get_name());
                ending(innermost, &words, program)
            }),
            _ => ending(inner, name, program),
        })
    })
}

fn ending(command: Command, words: &str, program: &str) -> Command {
    match of(words) {
        [] => command,
        examples => {
            let width = terminal::width();
            let lines: Vec<String> = examples
                .iter()
                .map(|example| continue_lines(&rename_program(example, program), width))
                .collect();
            command.after_long_help(format!("Examples:\n{}", lines.join("\n")))
        }
    }
}

/// Returns an example in lines of the width, continued by `\\` at spaces outside of quotes.
fn continue_lines(example: &str, width: usize) -> String {
    let mut text = String::from(" ");
    let mut column = text.len();
    let mut quoted = false;
    let words = example.split(|c| {
        quoted ^= c == '\'';
        c == ' ' && !quoted
    });
    for (i, word) in words.enumerate() {
        // A space before the word, a space and a backslash after it.
        if i > 0 && column + 1 + word.len() + 2 > width {
            text.push_str(" \\\n     ");
            column = 5;
        }
        text.push(' ');
        text.push_str(word);
        column += 1 + word.len();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_example_continues_with_a_backslash_and_can_be_copied() {
        let example = "maverl train run.toml --set 'a.b=\"c d\"' --set models.tiny.optim.lr=1e-4";
        let text = continue_lines(example, 40);
        assert!(text.lines().all(|line| line.len() <= 40), "{text}");
        assert!(text.contains("'a.b=\"c d\"'"), "{text}");
        let joined = text.replace(" \\\n", " ");
        assert_eq!(joined.split_whitespace().collect::<Vec<_>>().join(" "), example);
        assert_eq!(continue_lines(example, 200), format!("  {example}"));
    }
}
