//! Templates of the files that clusters start.

/// Fills the fields `{{NAME}}` of a template. Lines with a field without a value are left out.
pub(super) fn fill_template(template: &str, values: &[(&'static str, Option<String>)]) -> String {
    let lines = template.lines().filter_map(|line| fill_line(line, values));
    lines.map(|line| line + "\n").collect()
}

/// Fills the fields of a line; `None` if one has no value. What is filled in is not read again.
fn fill_line(line: &str, values: &[(&'static str, Option<String>)]) -> Option<String> {
    let Some((before, rest)) = line.split_once("{{") else { return Some(line.to_owned()) };
    let (name, after) = rest.split_once("}}")?;
    let (_, value) = values.iter().find(|(known, _)| *known == name)?;
    Some(format!("{before}{}{}", value.as_ref()?, fill_line(after, values)?))
}
