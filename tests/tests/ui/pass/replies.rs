//! Replies: the parser and the sentence agree.

use maverl::prelude::*;

#[derive(Reply, Debug, Clone, Copy, PartialEq)]
#[reply(tag = "verify")]
enum Verdict {
    #[reply("approve")]
    Approve,
    #[reply("Try Again")]
    Retry,
    GiveUp,
}

#[derive(Reply, Debug, PartialEq)]
#[reply(tag = "search")]
struct Query(
    /// a few words to look for.
    #[reply(example = "capital of France")]
    String,
);

#[derive(Reply, Debug, PartialEq)]
struct Step {
    /// what to do next
    plan: String,
    #[reply(tag = "Score-10", example = "7")]
    score: u8,
    note: Option<String>,
    r#type: Option<std::num::NonZeroU8>,
}

#[derive(Reply, Debug, PartialEq)]
#[reply(tag = "n", format = "Say a number in <n></n>.")]
struct Count(i64);

fn error<R: Reply>(reply: &str) -> String {
    R::parse(reply).err().expect("a malformed reply").to_string()
}

#[test]
fn a_word_is_read_without_regard_to_case_and_space() {
    assert_eq!(
        Verdict::format(),
        "Reply with exactly one <verify>...</verify> block that holds one of: approve, Try Again, give_up."
    );
    let words = [
        ("approve", Verdict::Approve),
        ("\n TRY AGAIN ", Verdict::Retry),
        ("Give_Up", Verdict::GiveUp),
    ];
    for (word, verdict) in words {
        let reply = format!("Well. <VERIFY>{word}</verify> So.");
        assert_eq!(Verdict::parse(&reply).unwrap(), verdict);
    }
}

#[test]
fn a_malformed_word_is_an_error_and_never_a_default() {
    assert_eq!(error::<Verdict>("approve"), "no <verify>...</verify> block");
    assert_eq!(
        error::<Verdict>("<verify></verify>"),
        r#"<verify> holds ""; expected one of ["approve", "Try Again", "give_up"]"#
    );
    assert!(error::<Verdict>("<verify>approve reject</verify>").contains("approve reject"));
    assert!(error::<Verdict>("</verify>approve<verify>").contains("opened and closed"));
    assert!(error::<Verdict>("<verify>a</verify><verify>b</verify>").contains("2 <verify> blocks"));
}

#[test]
fn a_value_is_read_from_its_block() {
    assert_eq!(
        Query::format(),
        "Reply with exactly one <search>a few words to look for</search> block. \
         For example: <search>capital of France</search>"
    );
    assert_eq!(Query::parse("<search> rust\n</search>").unwrap(), Query("rust".to_owned()));
    assert_eq!(error::<Query>("<search> </search>"), r#"<search> holds "": it is empty"#);
    assert_eq!(Count::format(), "Say a number in <n></n>.");
    assert_eq!(Count::parse("<n>-3</n>").unwrap(), Count(-3));
    assert!(error::<Count>("<n>three</n>").contains("invalid digit"));
}

#[test]
fn a_struct_has_a_block_a_field() {
    assert_eq!(
        Step::format(),
        "Reply with exactly one of each of these blocks: <plan>what to do next</plan>, \
         <Score-10>...</Score-10>. You may add one of each of these blocks: <note>...</note>, \
         <type>...</type>. For example: <Score-10>7</Score-10>"
    );
    let step = Step { plan: "go".to_owned(), score: 3, note: None, r#type: None };
    assert_eq!(Step::parse("<score-10>3</score-10><plan>go</plan>").unwrap(), step);
    let noted = Step::parse("<plan>go</plan><Score-10>3</Score-10><note>x</note><type>1</type>");
    assert_eq!(noted.unwrap().note.as_deref(), Some("x"));
}

#[test]
fn a_block_that_may_be_left_out_may_not_be_malformed() {
    let reply = |rest: &str| format!("<plan>go</plan><Score-10>3</Score-10>{rest}");
    assert!(error::<Step>(&reply("<note>x")).contains("opened and closed"));
    assert!(error::<Step>(&reply("<note></note>")).contains("empty"));
    assert!(error::<Step>(&reply("<type>0</type>")).contains("zero"));
    assert!(error::<Step>("<plan>go</plan>").contains("<Score-10>"));
}
