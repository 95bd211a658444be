#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use super::*;

fn strings(task: &Task, field: &str) -> Vec<String> {
    serde_json::from_value(task.data[field].clone()).unwrap()
}

#[test]
fn the_world_is_as_large_as_promised() {
    let corpus = corpus();
    assert_eq!(corpus.len(), 840);
    assert_eq!(corpus.iter().map(|d| &d.key).collect::<BTreeSet<_>>().len(), corpus.len());
    let sizes = SPLITS.map(|split| tasks(split).unwrap().len());
    assert!(sizes[0] >= 2000 && sizes[1] >= 600 && sizes[2] >= 1000, "{sizes:?}");
    assert!(tasks("dev").is_none());
}

#[test]
fn it_is_the_same_world_every_time() {
    assert_eq!(corpus(), corpus());
    assert_eq!(tasks("test"), tasks("test"));
}

#[test]
fn documents_are_short_ascii_sentences() {
    for document in corpus() {
        let all = format!("{} {}", document.title, document.text);
        assert!(all.is_ascii(), "{all}");
        let words = all.split_whitespace().count();
        assert!((8..=20).contains(&words), "{words} words: {all}");
        assert!(document.text.contains(&document.title), "{all}");
        assert!(document.text.ends_with('.'), "{all}");
    }
}

#[test]
fn no_document_behind_a_held_out_question_is_behind_a_training_question() {
    let behind = |split| -> BTreeSet<String> {
        tasks(split).unwrap().iter().flat_map(|task| strings(task, "support")).collect()
    };
    let [train, validation, test] = SPLITS.map(behind);
    assert!(train.is_disjoint(&validation));
    assert!(train.is_disjoint(&test));
    assert!(validation.is_disjoint(&test));
}

#[test]
fn the_last_document_holds_the_answer_and_each_names_the_next() {
    let corpus: BTreeMap<String, Document> =
        corpus().into_iter().map(|document| (document.key.clone(), document)).collect();
    for task in SPLITS.iter().flat_map(|split| tasks(split).unwrap()) {
        let answers = strings(&task, "answers");
        let support: Vec<&Document> =
            strings(&task, "support").iter().map(|key| &corpus[key]).collect();
        assert_eq!(task.data["hops"], support.len());
        assert!(answers[0].split(' ').count() <= 3);
        assert!(support.last().unwrap().text.contains(&answers[0]), "{task:?}");
        assert!(task.question.contains(&support[0].title), "{task:?}");
        assert!(!task.question.contains(&answers[0]), "{task:?}");
        for pair in support.windows(2) {
            assert!(pair[0].text.contains(&pair[1].title), "{task:?}");
            assert!(!task.question.contains(&pair[1].title), "{task:?}");
        }
    }
}

#[test]
fn questions_are_asked_once_and_in_several_phrasings() {
    for split in SPLITS {
        let tasks = tasks(split).unwrap();
        let questions: BTreeSet<&str> = tasks.iter().map(|task| task.question.as_str()).collect();
        assert_eq!(questions.len(), tasks.len());
        let ids: BTreeSet<&str> = tasks.iter().map(|task| task.id.as_str()).collect();
        assert_eq!(ids.len(), tasks.len());
        for opening in ["Who wrote", "Who is the author", "Where was", "In which city was"] {
            assert!(questions.iter().any(|question| question.starts_with(opening)));
        }
        let two = tasks.iter().filter(|task| task.source == "facts/two_hop").count() as f64;
        assert!((0.4..0.6).contains(&(two / tasks.len() as f64)), "{two} of {}", tasks.len());
    }
}

#[test]
fn no_name_is_a_word_of_a_template() {
    let names: BTreeSet<String> = corpus()
        .iter()
        .flat_map(|d| d.title.split(' ').map(str::to_lowercase).collect::<Vec<_>>())
        .collect();
    let text = corpus().into_iter().map(|d| d.text);
    let lowercase: BTreeSet<String> = text
        .chain(tasks("train").unwrap().into_iter().map(|task| task.question))
        .flat_map(|t| {
            t.split(|c: char| !c.is_alphanumeric()).map(str::to_owned).collect::<Vec<_>>()
        })
        .filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()))
        .collect();
    let both: Vec<_> = names.intersection(&lowercase).collect();
    assert!(both.is_empty(), "{both:?}");
}

#[test]
fn names_and_years_come_in_two_pieces() {
    assert_eq!(pieces("Magdor"), Some(("Mag", "dor")));
    assert_eq!(pieces("1728"), Some(("17", "28")));
    for word in ["", "M", "Ada", "magdor", "city", "Magdorx", "éé", "172"] {
        assert_eq!(pieces(word), None, "{word}");
    }
    for document in corpus() {
        assert!(pieces(document.title.split(' ').next_back().unwrap()).is_some(), "{document:?}");
    }
}

#[test]
fn what_meets_in_the_middle_of_a_name_or_year_meets_nowhere_else() {
    let documents = corpus().into_iter().map(|document| document.text);
    let questions = tasks("train").unwrap().into_iter().map(|task| task.question);
    let (mut middles, mut inside) = (BTreeSet::new(), BTreeSet::new());
    let mut neighbors = |piece: &str| {
        inside.extend(piece.as_bytes().windows(2).map(<[u8]>::to_vec));
    };
    for text in documents.chain(questions) {
        for word in text.split(|c: char| !c.is_ascii_alphanumeric()) {
            let Some((start, end)) = pieces(word) else {
                neighbors(word);
                continue;
            };
            neighbors(start);
            neighbors(end);
            middles.insert(word.as_bytes()[start.len() - 1..=start.len()].to_vec());
        }
    }
    let both: Vec<_> = middles.intersection(&inside).map(|b| String::from_utf8_lossy(b)).collect();
    assert!(both.is_empty(), "{both:?}");
}
