//! Sentences on the change of the score: its cause, its parts, and the numbers behind them.

use super::terms::{ChangeTerm, ScoreChange, SourceChange};
use crate::compact::sort_by;
use crate::report::analyses::divergence::CauseKind;

/// Returns a number with its sign, as the pages write it.
pub(crate) fn signed_number(value: f64) -> String {
    let text = format!("{:.3}", value.abs());
    format!("{}{text}", if value < 0.0 && text != "0.000" { "−" } else { "+" })
}

/// Number of parts that are named.
const NAMED: usize = 6;

/// Returns a number to two decimals with its sign; `None` if it is 0 then.
fn rounded_number(value: f64) -> Option<String> {
    match format!("{:.2}", value.abs()).as_str() {
        "0.00" => None,
        text => Some(format!("{}{text}", if value < 0.0 { "−" } else { "+" })),
    }
}

/// Says by how much the score changed, and why. `named` is the number of the step before.
pub(crate) fn answer_change(change: &ScoreChange, named: u32) -> String {
    let Some(by) = rounded_number(change.by) else {
        return format!("The score is as in step {named}, to two decimals.");
    };
    let way = if change.by < 0.0 { "fell" } else { "rose" };
    let size = by.trim_start_matches(['−', '+']);
    let start = format!("The score {way} by {size} from step {named}");
    match &change.cause {
        Some(cause) => format!("{start}: {cause}."),
        None => format!("{start}, which is within chance."),
    }
}

/// Names the cause of a change that is beyond chance: its largest part, and the source where most of it is.
pub(crate) fn name_cause(change: &ScoreChange, named: u32) -> Option<String> {
    if change.is_chance() || rounded_number(change.by).is_none() {
        return None;
    }
    if let Some(term) = change.leading_term() {
        return Some(count_episodes(change, term, named) + &name_main_source(change));
    }
    if change.share_along(change.mix) >= change.share_along(change.new) {
        let kinds = if change.by < 0.0 { "harder" } else { "easier" };
        return Some(format!(
            "tasks of {kinds} kinds were drawn; {}",
            name_changed_share(change, named)?
        ));
    }
    let new = change.sources.iter().filter(|of| of.before.episodes == 0).map(|of| {
        format!("{} episodes of “{}”, which score {:.3}", of.now.episodes, of.source, of.now.score)
    });
    Some(format!("new sources of tasks: {}", new.collect::<Vec<_>>().join(", ")))
}

/// Says how many episodes a term has in both steps.
fn count_episodes(change: &ScoreChange, term: &ChangeTerm, named: u32) -> String {
    let [is, was] = term.episodes;
    let [n, m] = change.episode_counts();
    let numbers = format!("{is} of {n} episodes ({was} of {m} in step {named})");
    let seat = term.cause.seat.as_deref().unwrap_or_default();
    let only = if change.by > 0.0 { "only " } else { "" };
    match term.cause.kind {
        CauseKind::Solved => "solved tasks have other scores".to_owned(),
        CauseKind::Diverged => format!("{seat} lost {only}{numbers}"),
        CauseKind::Malformed | CauseKind::Truncated => {
            format!("{} lost {only}{numbers}", term.cause.short_text())
        }
        _ => format!("{numbers} are {}", term.cause.text()),
    }
}

/// Share of a part above which it is mostly that of one source.
const MOSTLY: f64 = 0.7;

/// Names the source of several that most of the change within sources comes from.
fn name_main_source(change: &ScoreChange) -> String {
    let both = change.sources.iter().filter(|of| of.is_in_both());
    let whole = change.share_along(change.within_sources());
    let most = both
        .clone()
        .max_by(|a, b| change.share_along(a.within).total_cmp(&change.share_along(b.within)));
    match most {
        Some(of) if both.count() > 1 && change.share_along(of.within) > MOSTLY * whole => {
            format!(", mostly of “{}”", of.source)
        }
        _ => String::new(),
    }
}

fn rounded_hundredths(value: f64) -> f64 {
    format!("{value:.2}").parse().map_or(0.0, |value: f64| (100.0 * value).round())
}

/// Names the parts of a change that has a cause: those that go the way of the change first, the largest of them at the
/// start. The numbers that are named add up to the change that is: the last one is what rounding and smaller parts leave.
pub(crate) fn named_parts(change: &ScoreChange) -> String {
    if change.cause.is_none() {
        return String::new();
    }
    let kinds = [
        (change.mix, "another mix of tasks".to_owned()),
        (change.new, "tasks of new sources".to_owned()),
    ];
    let terms = change.terms.iter().map(|term| (term.by, term.cause.short_text()));
    let mut parts: Vec<(f64, String)> = kinds.into_iter().chain(terms).collect();
    sort_by(&mut parts, |(a, _), (b, _)| {
        let [a_along, b_along] = [a, b].map(|part| part.signum() == change.by.signum());
        b_along.cmp(&a_along).then(b.abs().total_cmp(&a.abs()))
    });
    let rest: f64 = parts.iter().skip(NAMED).map(|(by, _)| by).sum();
    parts.truncate(NAMED);
    parts.push((rest, "all others".to_owned()));
    let named: f64 = parts.iter().map(|(by, _)| rounded_hundredths(*by)).sum();
    parts.push(((rounded_hundredths(change.by) - named) / 100.0, "rounding".to_owned()));
    let parts =
        parts.into_iter().filter_map(|(by, what)| Some(format!("{} {what}", rounded_number(by)?)));
    format!("In parts: {}.", parts.collect::<Vec<_>>().join(", "))
}

/// Says what the change is mostly made of. `named` is the number of the step before.
pub(crate) fn explain_change(change: &ScoreChange, named: u32) -> Vec<String> {
    let mut text = match change.interval {
        Some([low, high]) if low <= 0.0 && high >= 0.0 => vec![format!(
            "Other tasks of the same kinds are reason enough: the 95 % interval of the change, {} to {}, has 0.",
            signed_number(low),
            signed_number(high)
        )],
        _ => name_largest(change, named),
    };
    text.extend(change.sources.iter().filter(|of| of.before.episodes == 0).map(|of| {
        let (episodes, score) = (of.now.episodes, of.now.score);
        format!("New are {episodes} episodes of “{}”; they score {score:.3}.", of.source)
    }));
    text
}

/// Names the largest part of the change, and the largest of its own parts.
fn name_largest(change: &ScoreChange, named: u32) -> Vec<String> {
    let ScoreChange { now, before, by, mix, new, .. } = *change;
    let of = format!("of {}", signed_number(by));
    if let Some(most) = change.leading_term() {
        let how = if now < before { "worse" } else { "better" };
        let within = signed_number(change.within_sources());
        let first = format!(
            "Equal kinds of tasks were answered {how}: {within} {of} ({}).",
            list_scores(change, named)
        );
        let [is, was] = most.episodes;
        let by = signed_number(most.by);
        let text = &most.text;
        let second =
            format!("Of this, {by} comes from {is} episodes ({was} in step {named}): {text}.");
        return vec![first, second];
    }
    if change.share_along(mix) >= change.share_along(new) {
        let how = if now < before { "harder" } else { "easier" };
        let first = format!("The tasks drawn were of {how} kinds: {} {of}.", signed_number(mix));
        return [first]
            .into_iter()
            .chain(name_changed_share(change, named).map(|text| text + "."))
            .collect();
    }
    vec![format!("Tasks of new sources: {} {of}.", signed_number(new))]
}

/// Lists the scores of sources that both steps have, those first that changed the score most.
fn list_scores(change: &ScoreChange, named: u32) -> String {
    let both = change.sources.iter().filter(|of| of.is_in_both());
    let mut sources: Vec<&SourceChange> = both.collect();
    sort_by(&mut sources, |a, b| {
        change.share_along(b.within).total_cmp(&change.share_along(a.within))
    });
    let scores = sources.into_iter().take(4).map(|SourceChange { source, now, before, .. }| {
        format!("“{source}” {:.3}, {:.3} in step {named}", now.score, before.score)
    });
    scores.collect::<Vec<_>>().join("; ")
}

/// Says how the share of the source changed that changed most.
fn name_changed_share(change: &ScoreChange, named: u32) -> Option<String> {
    let [all, old] = change.episode_counts().map(|count| count as f64);
    let shares = change
        .sources
        .iter()
        .map(|one| (one, one.now.episodes as f64 / all, one.before.episodes as f64 / old));
    let (SourceChange { source, before, .. }, is, was) =
        shares.max_by(|(_, a, b), (_, c, d)| (a - b).abs().total_cmp(&(c - d).abs()))?;
    Some(format!(
        "“{source}” has {:.1} % of the episodes, {:.1} % in step {named}, where it scored {:.3}",
        100.0 * is,
        100.0 * was,
        before.score
    ))
}
