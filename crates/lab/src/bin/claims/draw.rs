//! Curves of the arms of a claim, as SVG.

use std::fmt::Write;

use maverl_lab::statistics::mean;

use crate::claims::Claim;
use crate::comparison::Outcomes;
use crate::quantity::{ArmOutcome, Measure, interpolate_at};

/// Colours of the arms, in their order.
const COLOURS: [&str; 3] = ["#c0392b", "#1f6fb2", "#2e8b57"];
/// Number of points of a line.
const POINTS: usize = 40;
const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 190.0;
const MARGIN: f64 = 56.0;
const TOP: f64 = 30.0;

/// A function of a run: coordinates that do not decrease, with values.
type Curve = fn(&ArmOutcome) -> Vec<(f64, f64)>;

/// A diagram: its title, the name of the horizontal axis, and the drawn function.
struct ClaimPanel {
    title: &'static str,
    axis: &'static str,
    curve: Curve,
}

/// A line with the range of the seeds: horizontal coordinate, mean, lowest and highest value.
type PanelCurve = Vec<[f64; 4]>;

/// Draws the rewards of a claim's arms, and what its tests are about beside.
pub(crate) fn draw_claim(claim: &Claim, outcomes: &Outcomes) -> String {
    let panels = claim_panels(claim);
    let width = panels.len() as f64 * (WIDTH + MARGIN) + MARGIN / 2.0;
    let height = TOP + HEIGHT + 40.0 + 20.0 * claim.arms.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" \
         font-size=\"12\" role=\"img\" aria-label=\"{}\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        claim.title
    );
    for (at, panel) in panels.iter().enumerate() {
        let lines: Vec<PanelCurve> = claim
            .arms
            .iter()
            .map(|arm| mean_line(outcomes_of_arm(outcomes, arm.name), panel.curve))
            .collect();
        draw_panel(&mut svg, MARGIN + at as f64 * (WIDTH + MARGIN), panel, &lines);
    }
    for (at, (arm, colour)) in claim.arms.iter().zip(COLOURS).enumerate() {
        let y = TOP + HEIGHT + 44.0 + 20.0 * at as f64;
        // Writing to a `String` cannot fail, here and below.
        let _ = writeln!(
            svg,
            "<line x1=\"{MARGIN}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"{colour}\" stroke-width=\"3\"/>\
             <text x=\"{}\" y=\"{}\" fill=\"#222222\">{}</text>",
            MARGIN + 24.0,
            MARGIN + 32.0,
            y + 4.0,
            arm.name
        );
    }
    svg + "</svg>\n"
}

/// Returns the diagrams of a claim.
fn claim_panels(claim: &Claim) -> Vec<ClaimPanel> {
    let mut panels = vec![ClaimPanel {
        title: "reward",
        axis: "sampled tokens",
        curve: |run| run.steps.iter().map(|step| (step.tokens, step.reward)).collect(),
    }];
    let mut measures = claim.tests.iter().map(|test| test.measure);
    if measures.clone().any(|measure| measure == Measure::Spikes) {
        panels.push(ClaimPanel {
            title: "largest gradient norm of a policy",
            axis: "sampled tokens",
            curve: |run| {
                let largest = run.steps.iter().filter_map(|step| {
                    Some((step.tokens, step.norms.values().copied().reduce(f64::max)?))
                });
                largest.collect()
            },
        });
    }
    if measures.any(|measure| measure == Measure::RewardAtKl) {
        panels.push(ClaimPanel { title: "reward", axis: "KL", curve: ArmOutcome::by_kl });
    }
    panels
}

/// Returns the outcomes of an arm, one for each seed.
fn outcomes_of_arm<'o>(outcomes: &'o Outcomes, arm: &str) -> Vec<&'o ArmOutcome> {
    outcomes.get(arm).into_iter().flat_map(|runs| runs.values()).collect()
}

/// Returns the mean over runs of a function, as far as all runs reach.
fn mean_line(runs: Vec<&ArmOutcome>, curve: Curve) -> PanelCurve {
    let curves: Vec<Vec<(f64, f64)>> = runs.into_iter().map(curve).collect();
    let ends = curves.iter().filter_map(|curve| curve.last()).map(|end| end.0);
    let starts = curves.iter().filter_map(|curve| curve.first()).map(|start| start.0);
    let (start, end) = (starts.fold(0.0, f64::max), ends.fold(f64::INFINITY, f64::min));
    let xs = (0..POINTS).map(|i| start + (end - start) * i as f64 / (POINTS - 1) as f64);
    // Rounding must not lead beyond the last point.
    xs.filter_map(|x| mean_point(&curves, x, x.min(end))).collect()
}

/// Returns the mean, the lowest and the highest value of curves at a point, which is drawn at `x`.
fn mean_point(curves: &[Vec<(f64, f64)>], x: f64, at: f64) -> Option<[f64; 4]> {
    let values: Vec<f64> = curves.iter().filter_map(|curve| interpolate_at(curve, at)).collect();
    let low = values.iter().copied().reduce(f64::min)?;
    let high = values.iter().copied().reduce(f64::max)?;
    Some([x, mean(values)?, low, high])
}

/// Formats a point, by the left side of a diagram and the ends of its axes.
fn point_text([x, y]: [f64; 2], left: f64, end: f64, [least, most]: [f64; 2]) -> String {
    let (x, y) = (left + WIDTH * x / end, TOP + HEIGHT - HEIGHT * (y - least) / (most - least));
    format!("{x:.1},{y:.1}")
}

/// Draws a frame with the ends of both axes, the ranges, and the lines above them.
fn draw_panel(svg: &mut String, left: f64, panel: &ClaimPanel, lines: &[PanelCurve]) {
    let points = lines.iter().flatten();
    let most = points.clone().map(|point| point[3]).fold(1e-9, f64::max);
    let least = points.clone().map(|point| point[2]).fold(0.0, f64::min);
    let end = points.map(|point| point[0]).fold(1e-9, f64::max);
    let range = [least, most];
    let bottom = TOP + HEIGHT;
    let _ = writeln!(
        svg,
        "<rect x=\"{left}\" y=\"{TOP}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#999999\"/>\n\
         <text x=\"{left}\" y=\"22\" fill=\"#222222\">{}</text>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#222222\">{most:.2}</text>\n\
         <text x=\"{}\" y=\"{bottom}\" text-anchor=\"end\" fill=\"#222222\">{least:.2}</text>\n\
         <text x=\"{left}\" y=\"{}\" fill=\"#222222\">0</text>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#222222\">{} {}</text>",
        panel.title,
        left - 4.0,
        TOP + 8.0,
        left - 4.0,
        bottom + 16.0,
        left + WIDTH,
        bottom + 16.0,
        panel.axis,
        if end < 10.0 { format!("{end:.3}") } else { format!("{end:.0}") },
    );
    for (line, colour) in lines.iter().zip(COLOURS) {
        let low = line.iter().map(|point| point_text([point[0], point[2]], left, end, range));
        let high =
            line.iter().rev().map(|point| point_text([point[0], point[3]], left, end, range));
        let area: Vec<String> = low.chain(high).collect();
        let _ = writeln!(
            svg,
            "<polygon points=\"{}\" fill=\"{colour}\" fill-opacity=\"0.12\"/>",
            area.join(" ")
        );
    }
    for (line, colour) in lines.iter().zip(COLOURS) {
        let means = line.iter().map(|point| point_text([point[0], point[1]], left, end, range));
        let means: Vec<String> = means.collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"/>",
            means.join(" ")
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::StepMetrics;

    #[test]
    fn a_line_is_the_mean_of_the_runs_as_far_as_all_reach() {
        let run = |points: &[(f64, f64)]| {
            let step = |&(tokens, reward)| StepMetrics { tokens, reward, ..StepMetrics::default() };
            ArmOutcome { steps: points.iter().map(step).collect(), ..ArmOutcome::default() }
        };
        let runs = [run(&[(0.0, 0.0), (10.0, 1.0)]), run(&[(0.0, 0.5), (20.0, 0.5)])];
        let line = mean_line(runs.iter().collect(), |run| {
            run.steps.iter().map(|step| (step.tokens, step.reward)).collect()
        });
        assert_eq!(line.len(), POINTS);
        assert_eq!(line[0], [0.0, 0.25, 0.0, 0.5]);
        assert_eq!(line[POINTS - 1], [10.0, 0.75, 0.5, 1.0]);
    }
}
