//! Tokens of turns in the words of three families of tokenizers.

use super::pages::Visit;
use super::*;

/// Directory of the reference models.
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures");
/// Replies: words, and characters of several bytes, which these tokenizers split.
const REPLIES: [&str; 2] = ["Lima is the capital of Peru", "¿Dónde? 東京 🙂 fin"];

#[test]
fn tokens_are_the_words_of_each_family_of_tokenizers() {
    let home = tempfile::tempdir().unwrap();
    let families = ["llama", "qwen2", "qwen3"];
    for family in families {
        let source = ModelSource::Directory(Path::new(FIXTURES).join(family));
        let words = Tokenizer::load(&ModelFiles::new(&source)).unwrap();
        let mut written = Written::new(&home.path().join(family));
        let json = words.to_json().unwrap();
        written.dir.write_tokenizers(&BTreeMap::from([("tiny".to_owned(), json)])).unwrap();
        let mut one = episode("train-0", 0, true, 2);
        for (turn, reply) in one.turns.iter_mut().zip(REPLIES) {
            (turn.policy, turn.reply) = ("tiny".into(), reply.to_owned());
            let tokens = turn.tokens.as_mut().unwrap();
            tokens.prompt = words.encode_plain("Which city?").unwrap();
            tokens.completion = words.encode_plain(reply).unwrap();
            tokens.completion.push(words.stop_ids()[0]);
            tokens.logprobs = vec![-0.5; tokens.completion.len()];
        }
        written.played(1, &[one]);
    }
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    let viewer = viewer_of(vec![home.path().to_owned()]);
    for (r, family) in families.iter().enumerate() {
        for (turn, reply) in REPLIES.iter().enumerate() {
            let path = format!("api/runs/{r}/episodes/train/1/0/turns/{turn}/tokens");
            let (_, found) = ask(&viewer, &path);
            let ids = found["completion"]["ids"].as_array().unwrap().len();
            let halves = found["completion"]["bytes"].as_object().unwrap().len();
            assert!((turn == 0) == (halves == 0), "{family}: {found}");
            at.go(&format!("r/{r}/tokens/train/1/0/{turn}"));
            at.browser
                .wait(&format!("document.querySelectorAll('[role=option]').length === {ids}"));
            let marks = at.browser.value("document.querySelectorAll('[role=option] .mark').length");
            assert_eq!(marks, halves, "{family}: bytes of half a character are hexadecimal");
            let text = at.browser.value(
                "[...document.querySelectorAll('[role=option]:not(.special)')].map((o) => { \
                 const c = o.cloneNode(true); c.querySelectorAll('.mark').forEach((m) => m.remove()); return c.textContent; }).join('')",
            );
            assert_eq!(text, *reply, "{family}");
            let special =
                at.browser.value("document.querySelectorAll('[role=option].special').length");
            assert_eq!(special, 1, "{family}: the stop token");
        }
    }
    at.browser.assert_quiet();
}
