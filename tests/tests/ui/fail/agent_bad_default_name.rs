use maverl::prelude::*;

#[derive(Input)]
struct Work {
    text: String,
}

#[agent(Work -> Answer, prompt_text = "{{ text }} {{ reply_format }}")]
struct Größe;

fn main() {}
