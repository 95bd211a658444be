//! Pages in a real browser: what a user would notice.

use serde_json::json;
use tokio::net::TcpListener;

use super::browser::Browser;
use super::visits::{js, signed};
use super::*;

/// A server of runs, with a browser that looks at it.
pub(super) struct Visit {
    pub(super) browser: Browser,
    pub(super) url: String,
    _runtime: tokio::runtime::Runtime,
}

impl Visit {
    /// Serves the runs below a directory; `None` without a browser.
    pub(super) fn new(place: &Path, width: u32, height: u32) -> Option<Self> {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let viewer = viewer_of(vec![place.to_owned()]);
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}{}", listener.local_addr().unwrap(), viewer.secret_path());
        runtime.spawn(serve_pages(listener, viewer, std::future::pending()));
        let browser = Browser::open(&url, width, height)?;
        Some(Self { browser, url, _runtime: runtime })
    }

    /// Opens a page and waits until it has a heading.
    pub(super) fn go(&mut self, page: &str) {
        self.browser.visit("about:blank");
        self.browser.visit(&format!("{}#/{page}", self.url));
        self.browser.wait("document.querySelector('#main h1, #main .error') !== null");
        self.browser.rest();
    }
}

pub(super) fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    drop(run(&home.path().join("a")));
    home
}

#[test]
fn the_overview_shows_the_outcome_and_a_chart_its_values() {
    let home = home();
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("");
    assert_eq!(at.browser.text("tbody tr a.open"), "a");
    at.go("r/0");
    assert_eq!(at.browser.text("[data-outcome=after]"), "0.750");
    let report: Value =
        maverl::run_dir::disk::read_json(&home.path().join("a/evaluations/after.json")).unwrap();
    let low = report["sampled"]["overall"]["avg"]["low"].as_f64().unwrap();
    let outcome = at.browser.text(".dotplot");
    assert!(
        outcome.contains(&format!("{low:.3}")) && outcome.contains(", greedy 0.750"),
        "{outcome}"
    );
    let point = "(() => { const s = document.querySelector('[data-title=Solved] .plot svg'); const b = s.getBoundingClientRect(); \
        s.dispatchEvent(new PointerEvent('pointermove', { clientX: b.left + 44 + (b.width - 54) / 2, clientY: b.top + 60 })); \
        return document.querySelector('[data-title=Solved] .legend').textContent; })()";
    at.browser.wait("document.querySelector('[data-title=Solved] .plot svg') !== null");
    let legend = at.browser.value(point).as_str().unwrap().to_owned();
    let metrics = fs::read_to_string(home.path().join("a/metrics.jsonl")).unwrap();
    let second: Value = serde_json::from_str(metrics.lines().nth(1).unwrap()).unwrap();
    let solved = second["rollout/solved"].as_f64().unwrap();
    assert!(
        legend.contains("step 2") && legend.contains(&format!("{solved}")),
        "{legend}: {solved}"
    );
    at.go("r/0/metrics");
    at.browser.wait("document.querySelectorAll('figure.chart').length > 10");
    at.browser.assert_quiet();
}

#[test]
fn a_page_follows_a_run_without_being_loaded_again() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a");
    let mut written = Written::new(&path);
    written.step(1);
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("r/0");
    at.browser.value("window.loaded = 'once'");
    let label = "document.querySelector('[data-title=Entropy] .legend b').textContent";
    at.browser.wait(&format!("{label} === '1'"));
    written.step(2);
    at.browser.wait(&format!("{label} === '0.5'"));
    written.step(3);
    at.browser.wait(&format!("{label} === '0.333'"));
    let metrics = path.join("metrics.jsonl");
    let text = fs::read_to_string(&metrics).unwrap();
    let cut: u64 = text.lines().take(2).map(|line| line.len() as u64 + 1).sum();
    fs::File::options().write(true).open(metrics).unwrap().set_len(cut).unwrap();
    at.browser.wait(&format!("{label} === '0.5'"));
    written.evaluation("after", 3, 8);
    at.browser.wait("document.querySelector('[data-outcome=after]')?.textContent === '0.500'");
    assert_eq!(at.browser.value("window.loaded"), "once");
    at.browser.assert_quiet();
}

#[test]
fn an_episode_is_found_opened_by_keys_and_left_again() {
    let home = home();
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("r/0/episodes?stage=train&step=2");
    at.browser.wait("document.querySelectorAll('tbody tr.row').length === 8");
    at.browser.press("/");
    at.browser.value("document.activeElement.value = 'largest city'; document.activeElement.dispatchEvent(new Event('change'))");
    at.browser.wait("document.querySelector('[role=status].muted, p[role=status]').textContent.includes('8 episodes') || document.body.innerText.includes('8 episodes with')");
    at.browser.value("document.activeElement.blur()");
    at.browser.press("j");
    at.browser.press("Enter");
    at.browser.wait("location.hash.includes('/episode/train/2/')");
    at.browser.wait("document.querySelector('.lanes') !== null");
    at.browser.value("history.back()");
    at.browser.wait("location.hash.includes('q=largest') && document.querySelectorAll('tbody tr.row').length === 8");
    at.browser.assert_quiet();
}

#[test]
fn lanes_are_the_seats_and_rewards_add_up() {
    let home = home();
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("r/0/episode/train/2/5");
    at.browser.wait("document.querySelectorAll('.lane-head').length === 4");
    let heads =
        at.browser.value("[...document.querySelectorAll('.lane-head')].map((h) => h.textContent)");
    assert_eq!(heads, json!(["search/answerer", "search/searcher", "search/verifier", "search"]));
    let malformed = at.browser.text(".turn.malformed");
    assert!(malformed.contains("no <search> block"), "{malformed}");
    assert!(
        malformed.contains("= 0.000 score − 0.100 invalid_reply")
            || malformed.contains("= 1.000 score − 0.100 invalid_reply"),
        "{malformed}"
    );
    at.go("r/0/episode/train/2/0");
    at.browser.wait("document.querySelectorAll('.links path').length >= 2");
    at.browser.press("g");
    at.browser.wait("location.hash.includes('/group/2/')");
    at.browser.assert_quiet();
}

#[test]
fn tokens_are_those_of_the_turn_and_colors_those_of_a_quantity() {
    let home = home();
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("r/0/episode/train/2/0");
    at.browser.wait("document.querySelectorAll('.lane-head').length === 4");
    at.browser.press("t");
    at.browser.wait("location.hash.includes('/tokens/train/2/0/0')");
    at.browser.wait("document.querySelectorAll('[role=option]').length > 0");
    let turn = &searched(2, 0).turns[0];
    let tokens = turn.tokens.as_ref().unwrap();
    let count = at.browser.value("document.querySelectorAll('[role=option]').length");
    assert_eq!(count, tokens.completion.len());
    let text = at.browser.value(
        "[...document.querySelectorAll('[role=option]:not(.special)')].map((t) => t.textContent).join('')",
    );
    assert_eq!(text, turn.reply);
    let classes = "[...document.querySelectorAll('[role=option]')].map((t) => t.className).join()";
    let by_logprob = at.browser.value(classes);
    at.browser.value(
        "(() => { const s = document.querySelector('select'); s.value = 'moved'; s.dispatchEvent(new Event('change')); })()",
    );
    assert_ne!(at.browser.value(classes), by_logprob);
    assert_eq!(
        at.browser.value("location.hash.includes('color=moved')"),
        true,
        "the view is an address"
    );
    at.browser.value("document.querySelector('[role=listbox]').focus()");
    for i in 0..3 {
        at.browser.press("ArrowRight");
        let facts = at.browser.text(".token-facts").replace('−', "-");
        let expected = format!("log-prob {:.3}", tokens.logprobs[i]);
        assert!(facts.contains(&format!("token {i} ")) && facts.contains(&expected), "{facts}");
        assert!(facts.contains(&format!("id {}", tokens.completion[i])), "{facts}");
        let ratio = (0.125 * (i % 5) as f64 - 0.25).exp();
        assert!(facts.contains(&format!("ratio {ratio:.3}")), "{facts}");
    }
    // The likeliest tokens are shown once `maverl replay --top` has written them.
    let top = |i: usize| (tokens.completion[i], tokens.logprobs[i]);
    let record = json!({
        "episode": "2/train-0/0", "top": 1,
        "turns": [{ "turn": 0, "tokens": (0..tokens.completion.len()).map(|i| [top(i)]).collect::<Vec<_>>() }],
    });
    let path = home.path().join("a/samples/step-000002.top-0.json");
    fs::write(path, record.to_string()).unwrap();
    at.go("r/0/tokens/train/2/0/0");
    at.browser.wait("document.querySelectorAll('[role=option]').length > 0");
    at.browser.value("document.querySelector('[role=listbox]').focus()");
    at.browser.press("ArrowRight");
    let likeliest = format!("{:.3}", f64::from(tokens.logprobs[0]).exp());
    let shown = at.browser.text(".instead");
    assert!(shown.contains("likeliest") && shown.contains(&likeliest), "{shown}: {likeliest}");
    at.browser.press("]");
    at.browser.wait("location.hash.includes('/tokens/train/2/0/1')");
    at.browser.assert_quiet();
}

#[test]
fn the_parts_of_a_step_are_those_of_the_file() {
    let home = home();
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("r/0/timeline");
    at.browser.wait("document.querySelectorAll('[data-span]').length === 4");
    let row = at.browser.text("[data-part=rollout]");
    assert!(row.contains("1.500") && row.contains("75.0 %"), "{row}");
    assert_eq!(at.browser.value("document.querySelectorAll('path.area').length"), 5);
    let cache = at.browser.text("[data-worker='tiny: cache']");
    assert!(cache.contains("75.0 % of the cache"), "{cache}");
    assert!(at.browser.text("#main").contains("360 tokens per second"), "180 tokens in 0.5 s");
    at.browser.press("[");
    at.browser.wait("location.hash.includes('step=2')");
    at.browser.assert_quiet();
}

#[test]
fn a_step_is_compared_with_the_one_before_and_the_team_by_outcome() {
    let home = home();
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    let all: Vec<Episode> = (1..=3).flat_map(|s| (0..8).map(move |n| searched(s, n))).collect();
    // The pages round a tie up.
    let mean = |of: &[Episode]| {
        of.iter().map(|one| one.score().unwrap().reward).sum::<f64>() / of.len() as f64 + 1e-9
    };
    at.go("r/0/step?step=3");
    at.browser.wait("document.querySelector('[data-step-score]') !== null");
    assert_eq!(at.browser.text("[data-step-score]"), format!("{:.3}", mean(&all[16..])));
    let by = at.browser.text("[data-estimator]");
    assert_eq!(by, "Advantages: “group”, computed on the CPU.");
    let (before, usual) = (mean(&all[8..16]), mean(&all[..16]));
    let text = at.browser.text("#main");
    for expected in [
        format!("= {before:.3} in step 2 {}", signed(mean(&all[16..]) - before)),
        format!("mean of steps 1 to 2: {usual:.3}"),
        format!("scored {:.3} in earlier steps", usual - 1e-9),
    ] {
        assert!(text.contains(&expected), "{expected}\n{text}");
    }
    at.browser.press("[");
    at.browser.wait("location.hash.includes('step=2')");
    at.go("r/0");
    at.browser.wait("document.querySelectorAll('[data-team]').length === 3");
    let unsolved = all.iter().filter(|one| !one.score().unwrap().solved);
    let failed = unsolved.clone().filter(|one| one.turns[0].error.is_some()).count();
    let expected = format!("{:.1} %", 100.0 * failed as f64 / unsolved.count() as f64);
    let searcher = at.browser.text("[data-team='search/searcher']");
    assert!(searcher.contains(&expected), "{expected}: {searcher}");
    at.browser.assert_quiet();
}

/// Numbers of a group, from the episodes and the samples of a step.
pub(super) struct Weighed {
    /// Sum of the absolute sums of the advantages of equal replies.
    pub(super) weight: f64,
    /// Sum of the absolute advantages.
    pub(super) sum: f64,
    /// Number of replies that are equal to each reply.
    equal: Vec<usize>,
}

impl Weighed {
    pub(super) fn new(episodes: &[Episode], samples: &StepSamples, group: usize) -> Self {
        let mut replies: Vec<(&maverl::trajectory::Turn, f64, usize)> = Vec::new();
        let (mut sum, mut places) = (0.0, Vec::new());
        for sample in samples.of_group(group) {
            let turn = &episodes[sample.episode].turns[sample.turn];
            let is_equal = |other: &maverl::trajectory::Turn| {
                (&other.seat, &other.prompt, &other.reply)
                    == (&turn.seat, &turn.prompt, &turn.reply)
            };
            let known = replies.iter().position(|(other, ..)| is_equal(other));
            let at = known.unwrap_or_else(|| {
                replies.push((turn, 0.0, 0));
                replies.len() - 1
            });
            replies[at].1 += sample.advantage;
            replies[at].2 += 1;
            places.push(at);
            sum += sample.advantage.abs();
        }
        let weight = replies.iter().map(|(_, advantage, _)| advantage.abs()).sum();
        Self { weight, sum, equal: places.into_iter().map(|at| replies[at].2).collect() }
    }
}

#[test]
fn groups_of_all_steps_are_listed_by_their_weight_in_the_updates() {
    let home = home();
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    let weighed = |step: u64, id: usize| {
        let episodes: Vec<Episode> = (0..8).map(|n| searched(step, n)).collect();
        Weighed::new(&episodes, &samples(&episodes), id)
    };
    let groups = (1..=3).flat_map(|step| (0..6).map(move |id| (step, id)));
    let groups: Vec<Weighed> = groups.map(|(step, id)| weighed(step, id)).collect();
    // Of most groups, all replies are equal: their advantages cancel, and their sums without signs do not.
    let none = groups.iter().filter(|of| of.weight < 1e-9);
    assert!(none.clone().count() > 9 && none.clone().any(|of| of.sum > 1.0));
    let task = |its: &[Weighed]| its.iter().map(|of| of.weight).sum::<f64>();
    let tasks: Vec<f64> = groups.chunks(3).map(task).collect();
    let groups: Vec<f64> = groups.iter().map(|of| of.weight).collect();
    let told = |all: &[f64], noun: &str| {
        let most = all.iter().copied().fold(0.0, f64::max);
        let ties = all.iter().filter(|of| **of > most - 1e-6).count();
        let next = all.iter().copied().filter(|of| *of < most - 1e-6).fold(0.0, f64::max);
        match ties {
            1 => {
                // Each of the three agents has a turn in each of the four episodes of a task.
                let a_turn = most / if noun == "group" { 4.0 } else { 12.0 };
                format!(
                    ", with weight {} (next: {}), {} a turn.",
                    js(most, 2),
                    js(next, 2),
                    js(a_turn, 3)
                )
            }
            2 => format!(" and 1 more {noun}, each with weight {}.", js(most, 2)),
            n => format!(" and {} more {noun}s, each with weight {}.", n - 1, js(most, 2)),
        }
    };
    for (page, all) in [("r/0/groups", &groups), ("r/0/groups?step=all&by=task", &tasks)] {
        at.go(page);
        let n = all.len();
        at.browser.wait(&format!("document.querySelectorAll('tbody tr.row').length === {n}"));
        // Both lists name the same winners.
        let answer = at.browser.text(".answer");
        assert!(
            answer.starts_with("The group that taught the most, all its turns added up: step "),
            "{answer}"
        );
        assert!(answer.ends_with(&told(&groups, "group")), "{answer}");
        let text = at.browser.text("#main");
        assert!(
            text.contains("The task that taught the most, its groups added up: step "),
            "{text}"
        );
        assert!(text.contains(&told(&tasks, "task")), "{text}");
        let shown = at.browser.value(
            "[...document.querySelectorAll('tbody tr.row')].map((row) => Number([...row.children].at(-3).textContent))",
        );
        let shown: Vec<f64> = serde_json::from_value(shown).unwrap();
        let mut expected = all.clone();
        expected.sort_by(|a, b| b.total_cmp(a));
        let is_near = |(shown, expected): (&f64, &f64)| (shown - expected).abs() < 5.1e-3;
        assert!(shown.len() == n && shown.iter().zip(&expected).all(is_near), "{shown:?}");
    }
    // Agents are told apart, with what a turn weighs.
    let agents = at.browser.text("[data-agents]");
    let all: Vec<Episode> =
        (1..=3).flat_map(|step| (0..8).map(move |n| searched(step, n))).collect();
    for turn in 0..3 {
        let its: Vec<f64> = (0..6).map(|i| groups[3 * i + turn]).collect();
        let most = its.iter().copied().fold(0.0, f64::max);
        let ties = its.iter().filter(|weight| (*weight - most).abs() < 1e-6).count() - 1;
        let seat = &all[0].turns[turn].seat;
        let equal = match ties {
            0 => String::new(),
            1 => " (1 more group with equal weight)".to_owned(),
            n => format!(" ({n} more groups with equal weight)"),
        };
        let (weight, each) = (js(most, 2), js(most / 4.0, 3));
        let expected = format!(", {seat} with {weight}, {each} a turn{equal}");
        assert!(agents.contains(&expected), "{expected}: {agents}");
    }
    // Another order of the list leaves the answer as it is.
    let answer = at.browser.text(".answer");
    at.browser.value("[...document.querySelectorAll('th button')].find((b) => b.textContent === 'mean reward').click()");
    let says = "The list is sorted by mean reward, which does not say what taught the most.";
    at.browser.wait(&format!("document.querySelector('#main').textContent.includes('{says}')"));
    assert_eq!(at.browser.text(".answer"), answer);
    at.browser.value("document.querySelector('[aria-pressed]').click()");
    at.browser.wait("document.querySelectorAll('tbody tr.row').length === 2");
    // The page of a group counts the equal replies.
    for id in 0..6 {
        let expected = weighed(2, id);
        at.go(&format!("r/0/group/2/{id}"));
        at.browser.wait("document.querySelectorAll('td.sum').length === 4");
        let facts = at.browser.text("#main dl");
        let weight = format!("weight{}: advantages of equal replies", js(expected.weight, 2));
        assert!(facts.contains(&weight), "{weight}: {facts}");
        let rows = "[...document.querySelectorAll('tbody tr.row')].map((row) => [row.hidden, row.lastChild.textContent])";
        let read = |at: &mut Visit| -> Vec<(bool, String)> {
            serde_json::from_value(at.browser.value(rows)).unwrap()
        };
        let found = read(&mut at);
        let distinct: f64 = expected.equal.iter().map(|n| 1.0 / *n as f64).sum();
        let shown = found.iter().filter(|(hidden, _)| !hidden).count();
        assert_eq!(shown as f64, distinct.round(), "{found:?}");
        for ((hidden, row), n) in found.iter().zip(expected.equal) {
            let text = format!("+ {} equal", n - 1);
            assert_eq!(row.contains(&text), n > 1 && !hidden, "{row}: {n}");
        }
        at.browser.value(
            "document.querySelectorAll('tbody button.link').forEach((button) => button.click())",
        );
        assert!(read(&mut at).iter().all(|(hidden, _)| !hidden), "{found:?}");
    }
    at.browser.assert_quiet();
}

#[test]
fn without_replies_no_group_is_said_to_have_taught_the_most() {
    let home = home();
    fs::remove_file(home.path().join("a/rollouts/step-000002.jsonl.zst")).unwrap();
    let viewer = viewer_of(vec![home.path().to_owned()]);
    let (_, found) = ask(&viewer, "api/runs/0/groups/2");
    assert!(found["groups"].as_array().unwrap().iter().all(|of| of["weight"].is_null()), "{found}");
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("r/0/groups?step=2");
    at.browser.wait("document.querySelectorAll('tbody tr.row').length === 6");
    let text = at.browser.text("#main");
    assert!(text.contains("which group taught the most cannot be told"), "{text}");
    assert_eq!(at.browser.value("document.querySelector('.answer')"), Value::Null);
    at.browser.assert_quiet();
}

#[test]
fn runs_that_differ_in_the_seed_only_are_told_with_their_spread() {
    let home = home();
    drop(run(&home.path().join("b")));
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("compare?runs=0,1");
    let seeds = "document.querySelector('[data-seeds=AB]')?.textContent ?? ''";
    at.browser.wait(&format!("({seeds}).includes('differ in the seed only')"));
    let text = at.browser.text("[data-seeds=AB]");
    assert!(text.contains("mean 0.750") && text.contains("not distinguishable"), "{text}");
    at.browser.assert_quiet();
}

#[test]
fn the_arithmetic_of_a_group_gives_each_advantage() {
    let home = home();
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("r/0/groups?step=2");
    at.browser.wait("document.querySelectorAll('tbody tr.row').length === 6");
    let samples = samples(&(0..8).map(|n| searched(2, n)).collect::<Vec<_>>());
    for group in &samples.groups {
        at.go(&format!("r/0/group/2/{}", group.id));
        at.browser.wait("document.querySelectorAll('td.sum').length === 4");
        // Each line, computed again from the numbers that it shows.
        let lines = at.browser.value(
            "[...document.querySelectorAll('td.sum')].map((cell) => { \
             const [terms, result] = cell.textContent.replaceAll('−', '-').split(' = '); \
             return [terms.split('/')[0].replace(/[()]/g, ' ').trim().split(/\\s+-\\s+/).map(Number).reduce((a, b) => a - b), Number(result)]; })",
        );
        let recorded: Vec<f64> =
            samples.of_group(group.id).map(|sample| sample.advantage).collect();
        for (line, recorded) in lines.as_array().unwrap().iter().zip(recorded) {
            let (centered, shown) = (line[0].as_f64().unwrap(), line[1].as_f64().unwrap());
            assert!((shown - recorded).abs() < 6e-4, "{line}: {recorded}");
            assert!(
                (centered / (group.deviation + 1e-6) - recorded).abs() < 3e-3
                    || group.deviation == 0.0,
                "{line}"
            );
        }
    }
    at.browser.assert_quiet();
}

#[test]
fn hostile_texts_are_texts() {
    let home = home();
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    let pages = [
        "r/0/episode/train/2/5",
        "r/0/episodes?stage=train&step=2",
        "r/0/group/2/3",
        "r/0/tokens/train/2/5/0",
    ];
    for page in pages {
        at.go(page);
        at.browser.wait("document.body.textContent.includes('<img src=x onerror=alert(1)>')");
        assert_eq!(
            at.browser.value("document.querySelectorAll('main img, main script').length"),
            0
        );
        assert_eq!(
            at.browser.value("/[\\u202e\\u200b\\u001b]/.test(document.body.textContent)"),
            false,
            "{page}"
        );
        at.browser.wait(
            "[...document.querySelectorAll('.mark')].some((mark) => mark.textContent === 'U+202E')",
        );
        let wide = at.browser.value("document.documentElement.scrollWidth <= innerWidth");
        assert_eq!(wide, true, "{page} is as wide as the window");
    }
    at.go("r/0/episode/train/2/5");
    let attempts = "(() => { try { document.body.insertAdjacentHTML('beforeend', '<b>x</b>'); return 'allowed'; } catch { return 'refused'; } })()";
    assert_eq!(at.browser.value(attempts), "refused");
    // The attempt itself is reported by the browser.
    at.browser.complaints.retain(|complaint| !complaint.contains("TrustedHTML"));
    at.browser.assert_quiet();
}

#[test]
fn every_control_has_a_name_and_every_text_contrast_in_both_themes() {
    let home = home();
    drop(run(&home.path().join("b")));
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    let pages = [
        "",
        "r/0",
        "r/0/episodes",
        "r/0/episode/train/2/5",
        "r/0/groups?step=2",
        "r/0/group/2/3",
        "r/0/config",
        "r/0/metrics",
        "r/0/tokens/train/2/0/0",
        "r/0/tokens/train/2/0/0?color=moved",
        "r/0/timeline",
        "r/0/step?step=3",
        "r/0/groups?step=all",
        "compare?runs=0,1",
    ];
    for theme in ["light", "dark"] {
        at.browser.theme(theme);
        for page in pages {
            at.go(page);
            at.browser.wait(&format!("document.documentElement.dataset.theme === '{theme}'"));
            let low = at.browser.low_contrast(4.5);
            assert!(low.is_empty(), "{theme} {page}: {low:?}");
            let unnamed = at.browser.unnamed();
            assert!(unnamed.is_empty(), "{page}: {unnamed:?}");
        }
    }
    at.browser.resize(400, 800);
    for page in pages {
        at.go(page);
        let fits = at.browser.value("document.documentElement.scrollWidth <= 400");
        assert_eq!(fits, true, "{page} at 400 pixels");
    }
    at.browser.assert_quiet();
}

/// Pictures of the pages of the first run in a directory, as the book shows them: `MAVERL_RUNS=DIR MAVERL_PICTURES=DIR
/// cargo test --workspace --lib -- --ignored pictures_of_a_run`.
#[test]
#[ignore = "makes the pictures of the book"]
fn pictures_of_a_run() {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let (Some(place), Some(out)) = (variable("MAVERL_RUNS"), variable("MAVERL_PICTURES")) else {
        panic!("MAVERL_RUNS and MAVERL_PICTURES name directories");
    };
    let Some(mut at) = Visit::new(&place, 1200, 800) else { return };
    fs::create_dir_all(&out).unwrap();
    let text = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.into());
    let (format, step) = (text("MAVERL_FORMAT", "webp"), text("MAVERL_STEP", "10"));
    // The group of the first step that weighs most, and its first episode.
    let mut first = |page: &str| {
        at.go(page);
        at.browser.wait("document.querySelector('tbody tr.row a.open') !== null");
        let link = at.browser.value("document.querySelector('tbody tr.row a.open').hash.slice(2)");
        link.as_str().unwrap().to_owned()
    };
    let group = first("r/0/groups?step=1");
    let episode = first(&group);
    let tokens = episode.replace("/episode/", "/tokens/") + "/0?color=entropy";
    // The name of the picture, the page, and the heading at its top.
    let mut pages = vec![
        ("overview", "r/0".to_owned(), ""),
        ("team", "r/0".to_owned(), "Bottlenecks"),
        ("step", format!("r/0/step?step={step}"), ""),
        ("episode", episode, ""),
        ("tokens", tokens, ""),
        ("group", group, ""),
        ("timeline", format!("r/0/timeline?step={step}"), ""),
    ];
    // The others, to be looked at.
    if std::env::var_os("MAVERL_ALL").is_some() {
        pages.extend([
            ("runs", String::new(), ""),
            ("groups", "r/0/groups?step=all".to_owned(), ""),
            ("compare", "compare?runs=0,1".to_owned(), ""),
            ("metrics", "r/0/metrics".to_owned(), ""),
            ("episodes", format!("r/0/episodes?stage=train&step={step}"), ""),
            ("config", "r/0/config".to_owned(), ""),
        ]);
        pictures(&mut at, &pages, &out, ("light", 400), &format);
    }
    for theme in ["light", "dark"] {
        pictures(&mut at, &pages, &out, (theme, 1200), &format);
    }
}

/// Writes a picture of each page.
fn pictures(
    at: &mut Visit,
    pages: &[(&str, String, &str)],
    out: &Path,
    (theme, width): (&str, u32),
    format: &str,
) {
    at.browser.theme(theme);
    at.browser.resize(width, 800);
    let narrow = if width < 1000 { "-narrow" } else { "" };
    for (name, page, heading) in pages {
        at.go(page);
        let top = format!(
            "[...document.querySelectorAll('h2')].find((h) => {heading:?} && h.textContent.startsWith({heading:?}))?.scrollIntoView()"
        );
        at.browser.value(&top);
        at.browser.value("new Promise((done) => setTimeout(done, 200))");
        at.browser.picture(&out.join(format!("{name}-{theme}{narrow}.{format}")), format);
    }
}
