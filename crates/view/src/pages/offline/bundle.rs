//! The modules of the pages as one script: each is a function that is called at once and returns its exports.

use std::fmt::Write as _;

use crate::pages::assets;

/// Returns all modules as one script.
pub(crate) fn bundle_script() -> String {
    let mut script = String::new();
    for (name, ..) in assets::FILES.iter().filter(|(name, ..)| name.ends_with(".js")) {
        if *name == "main.js" {
            // The pages start with answers at hand.
            script += &module_constant(assets::STATIC, &assets::sent_text(assets::STATIC));
        }
        script += &module_constant(name, &assets::sent_text(name));
    }
    script
}

/// Returns a module as a constant that holds its exports.
fn module_constant(name: &str, text: &str) -> String {
    let (mut body, mut exports) = (String::new(), Vec::new());
    for line in text.lines() {
        let line = match (import_constants(line), line.strip_prefix("export ")) {
            (Some(import), _) => import,
            (None, Some(declaration)) => {
                exports.extend(declared_name(declaration));
                declaration.to_owned()
            }
            (None, None) => line.to_owned(),
        };
        body += &line;
        body.push('\n');
    }
    let mut module = String::new();
    // Writing to a `String` cannot fail.
    let _ = writeln!(
        module,
        "const {} = (() => {{\n{body}return {{ {} }};\n}})();",
        constant_name(name),
        exports.join(", ")
    );
    module
}

/// Returns the constant of a module.
fn constant_name(file: &str) -> String {
    format!("module_{}", file.trim_end_matches(".js"))
}

/// Returns an import as a constant: `import { a, b } from "./x.js";` or `import * as x from "./x.js";`.
fn import_constants(line: &str) -> Option<String> {
    let (names, from) = line.strip_prefix("import ")?.split_once(" from \"./")?;
    let module = constant_name(from.trim_end_matches("\";"));
    let names = names.strip_prefix("* as ").unwrap_or(names);
    Some(format!("const {names} = {module};"))
}

/// Returns the name that a line declares.
fn declared_name(line: &str) -> Option<&str> {
    let words = ["async ", "function ", "const ", "class "];
    let rest = words.iter().fold(line, |rest, word| rest.strip_prefix(word).unwrap_or(rest));
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'))?;
    (end > 0).then(|| &rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_a_constant_with_its_exports() {
        let text = "import { a, b } from \"./dom.js\";\nimport * as runs from \"./page_runs.js\";\n\
                    const own = 1;\nexport const view = { x: own };\nexport async function page(root) {}\n\
                    export class Chart {\n}\n";
        let expected = "const module_x = (() => {\nconst { a, b } = module_dom;\nconst runs = module_page_runs;\n\
                        const own = 1;\nconst view = { x: own };\nasync function page(root) {}\nclass Chart {\n}\n\
                        return { view, page, Chart };\n})();\n";
        assert_eq!(module_constant("x.js", text), expected);
    }

    #[test]
    fn every_module_comes_after_those_that_it_uses_and_none_ends_the_script() {
        let script = bundle_script();
        assert!(
            !script.contains("</script")
                && !script.contains("\nexport ")
                && !script.contains("\nimport ")
        );
        for line in
            script.lines().filter(|line| line.starts_with("const {") || line.starts_with("const "))
        {
            let Some((before, used)) = line.rsplit_once("= module_") else { continue };
            let declared = format!("const module_{} = (", used.trim_end_matches(';'));
            assert!(
                script.find(&declared) < script.find(&format!("{before}= module_{used}")),
                "{line}"
            );
        }
    }
}
