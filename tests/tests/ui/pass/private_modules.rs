//! Everything private, in modules of its own, named by path.

mod words {
    use maverl::prelude::*;

    #[derive(Input)]
    pub(super) struct Topic {
        pub(super) text: String,
    }

    #[derive(Reply, Debug, PartialEq)]
    #[reply(tag = "verdict")]
    pub(super) enum Verdict {
        Good,
        NotSoGood,
    }
}

mod agents {
    use maverl::prelude::*;

    #[agent(
        name = "hidden/judge",
        input = super::words::Topic,
        output = super::words::Verdict,
        prompt_text = "{{ text }} {{ reply_format }}",
    )]
    pub(super) struct Judge;

    pub(super) mod deeper {
        use maverl::prelude::*;

        #[agent(name = "hidden/writer", input = super::super::words::Topic, output = String, prompt_text = "{{ text }}")]
        pub(in super::super) struct Writer;
    }
}

use maverl::prelude::*;

#[orchestra(name = "hidden/flow", agents(agents::Judge, agents::deeper::Writer))]
struct Flow;

impl Orchestra for Flow {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let text =
            team.ask::<agents::deeper::Writer>(&words::Topic { text: task.question.clone() });
        let topic = words::Topic { text: text.await? };
        let verdict = team.ask::<agents::Judge>(&topic).await?;
        Ok((verdict == words::Verdict::Good).then_some(topic.text))
    }
}

#[test]
fn private_types_make_a_team() {
    assert_eq!(Flow.members(), [Seat::only("hidden/judge"), Seat::only("hidden/writer")]);
    assert_eq!(
        agents::Judge.parse("<verdict>not_so_good</verdict>").unwrap(),
        words::Verdict::NotSoGood
    );
}
