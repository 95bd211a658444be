//! Calls that a template renders are the calls that are read.

use super::*;

#[test]
fn the_form_of_a_template_is_found_by_its_rendering() {
    for (template, format) in TEMPLATES {
        let found = template_calls(&tokenizer(template));
        assert_eq!(found, TemplateCalls::Found(format), "{template}");
    }
}

#[test]
fn calls_that_a_template_renders_are_read() {
    let mut beyond = 0;
    for (template, format) in TEMPLATES {
        let tokenizer = tokenizer(template);
        let mut draw = Draw(7);
        for _ in 0..case_count(40, 1000) {
            let (wanted, tools) = draw_calls(&mut draw);
            if is_beyond(format, &wanted) {
                beyond += 1;
                continue;
            }
            let turn = render_calls(&tokenizer, format, &wanted, &tools);
            let found: Result<Vec<Call>, _> = calls(&turn, format, &tools).into_iter().collect();
            assert_eq!(found.as_ref(), Ok(&wanted), "{template}: {turn}");
        }
    }
    assert!(beyond < case_count(15 * 40, 15 * 1000) / 8, "{beyond} cases were left out");
}

#[test]
fn a_rendered_call_is_the_same_call_for_an_agent() {
    let tools = declare(&[("add", json!({"x": {"type": "integer"}, "note": {"type": "string"}}))]);
    let wanted =
        [call("add", json!({"x": 1, "note": "a </think> \"b\"\n"})), call("add", json!({}))];
    for (template, format) in TEMPLATES {
        let tokenizer = tokenizer(template);
        let reply = render_calls(&tokenizer, format, &wanted, &tools);
        let of_model = ReplyFormat::of_model(&tokenizer, CallFormat::Auto, &ThoughtFormat::Auto);
        let read = read(&of_model.canonical_reply(&reply, "", &tools));
        assert_eq!(read, wanted.clone().map(Ok), "{template}: {reply}");
    }
}

#[test]
fn thoughts_of_a_template_are_found_and_reach_agents_in_one_form() {
    for (template, _) in TEMPLATES {
        let tokenizer = tokenizer(template);
        let format = ReplyFormat::of_model(&tokenizer, CallFormat::Auto, &ThoughtFormat::Auto);
        let (open, close) = match template {
            "mistral" | "mistral_v11" => ("[THINK]", "[/THINK]"),
            "gemma4" => ("<|channel>thought\n", "<channel|>"),
            _ => ("<think>", "</think>"),
        };
        assert_eq!(format.thoughts, ThoughtTags::new(open, close), "{template}");
        let reply = match template {
            "harmony" => "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>yes".to_owned(),
            _ => format!("{open}hm{close}yes"),
        };
        let read = format.canonical_reply(&reply, "", &[]);
        let answer = read
            .split_once("</think>")
            .map(|(thoughts, answer)| (thoughts.contains("hm"), answer.trim()));
        assert_eq!(answer, Some((true, "yes")), "{template}: {read}");
        // A reply that begins within its thoughts, as the end of its prompt says.
        if template == "gemma4" || template == "mistral" {
            let reply = format!("hm{close}yes");
            let read = format.canonical_reply(&reply, &format!("question{open}"), &[]);
            assert_eq!(read, "<think>\nhm\n</think>\n\nyes", "{template}");
        }
    }
}
