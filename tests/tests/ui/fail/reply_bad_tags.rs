use maverl::prelude::*;

#[derive(Reply)]
#[reply(tag = "step", format = "Reply with <plan></plan>.")]
struct Step {
    plan: String,
    #[reply(tag = "<why>")]
    reason: String,
    #[reply(tga = "plan")]
    next: Option<String>,
    #[reply(tag = "Plan")]
    other: String,
}

fn main() {}
