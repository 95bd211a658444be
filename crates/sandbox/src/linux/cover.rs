//! Coverage of the sandbox layers on this machine, and its gaps.

use std::collections::BTreeSet;

use super::Sandbox;
use crate::{Cover, Layer, Missing};

impl Sandbox {
    /// Returns the active layers on this machine, with the coverage of each.
    pub fn layers(&self) -> Vec<Cover> {
        let mut layers = Vec::new();
        let mut holds = |layer, what: String| layers.push(Cover { layer, what });
        if self.root.is_some() {
            let what = "files, users, processes, signals, mounts, network, IPC and host name";
            holds(Layer::Namespaces, what.to_owned());
        }
        if let Some(landlock) = &self.landlock {
            let leaves = landlock.leaves();
            let what = ["files", "TCP ports", "signals"];
            let what: Vec<&str> = what.into_iter().filter(|what| !leaves.contains(what)).collect();
            holds(Layer::Landlock, format!("{} (version {})", what.join(", "), landlock.abi()));
        }
        if self.filter.is_some() {
            holds(Layer::Seccomp, "system calls and their arguments".to_owned());
        }
        match (&self.asking, self.bounded) {
            (Some(_), _) => holds(Layer::Threads, "threads, counted when one starts".to_owned()),
            (None, true) => holds(Layer::Threads, "threads, counted by user".to_owned()),
            (None, false) => {}
        }
        layers
    }

    /// Returns the gaps of the protection on this machine, and protection by a single layer: a sentence for each
    /// missing layer.
    pub fn warnings(&self) -> Vec<String> {
        let lacks = |missing: &Missing| format!("lacks {missing}: {}", self.without(missing.layer));
        self.missing.iter().map(lacks).collect()
    }

    /// Describes the consequence of a missing layer.
    fn without(&self, layer: Layer) -> String {
        match layer {
            Layer::Namespaces => {
                let landlock = self.landlock.as_ref();
                let mut alone: BTreeSet<&str> =
                    landlock.map(|landlock| landlock.leaves()).into_iter().flatten().collect();
                alone.insert("the network");
                let alone = alone.into_iter().collect::<Vec<_>>().join(", ");
                format!(
                    "programs have no /tmp and see names and sizes of files; seccomp alone keeps them from {alone}"
                )
            }
            Layer::Landlock => {
                "a program can execute others of the machine in the directories of libraries, such as those of /usr/lib; \
                 namespaces alone keep programs from files"
                    .to_owned()
            }
            Layer::Seccomp => "there is no sandbox".to_owned(),
            Layer::Threads if self.bounded => "the namespace alone bounds threads".to_owned(),
            Layer::Threads => {
                "a program may start threads until its memory or time is over".to_owned()
            }
        }
    }
}
