//! Files that must compile, each with tests of its behavior.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "ui/pass/by_hand.rs"]
mod by_hand;
#[path = "ui/pass/configured.rs"]
mod configured;
#[path = "ui/pass/generic.rs"]
mod generic;
#[path = "ui/pass/options.rs"]
mod options;
#[path = "ui/pass/private_modules.rs"]
mod private_modules;
#[path = "ui/pass/prompt_files.rs"]
mod prompt_files;
#[path = "ui/pass/renamed.rs"]
mod renamed;
#[path = "ui/pass/replies.rs"]
mod replies;
#[path = "ui/pass/seats.rs"]
mod seats;
#[path = "ui/pass/short.rs"]
mod short;
#[path = "ui/pass/tools.rs"]
mod tools;
