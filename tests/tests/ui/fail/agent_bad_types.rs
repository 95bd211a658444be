use maverl::prelude::*;

#[derive(Input)]
struct Work {
    text: String,
}

#[agent(Work)]
struct One;

#[agent(Work => Answer, name = "team/two")]
struct Two;

#[agent(Work ->)]
struct Three;

#[agent(-> Answer)]
struct Four;

#[agent(Work, Answer)]
struct Five;

#[agent(Work -> Answer Approval)]
struct Six;

#[agent(Work -> Answer, output = Approval, prompt_text = "{{ text }} {{ reply_format }}")]
struct Seven;

#[agent(name = "team/eight", Work -> Answer)]
struct Eight;

fn main() {}
