//! Coverage of the sandbox layers on this machine, and its gaps.

use std::collections::BTreeSet;

use super::Sandbox;
use crate::{Cover, ProtectionLayer};

impl Sandbox {
    /// Returns the active layers on this machine, with the coverage of each.
    pub fn active_layers(&self) -> Vec<Cover> {
        let mut layers = Vec::new();
        if self.root.is_some() {
            let what = "files, users, processes, signals, mounts, network, IPC and host name";
            layers.push((ProtectionLayer::Namespaces, what.to_owned()));
        }
        if let Some(landlock) = &self.landlock {
            let leaves = landlock.uncovered_gaps();
            let what = ["files", "TCP ports", "signals"];
            let what: Vec<&str> = what.into_iter().filter(|what| !leaves.contains(what)).collect();
            let what = format!("{} (version {})", what.join(", "), landlock.abi_version());
            layers.push((ProtectionLayer::Landlock, what));
        }
        if self.filter.is_some() {
            layers.push((ProtectionLayer::Seccomp, "system calls and their arguments".to_owned()));
        }
        let threads = match (&self.asking, self.bounded) {
            (Some(_), _) => Some("threads, counted when one starts"),
            (None, true) => Some("threads, counted by user"),
            (None, false) => None,
        };
        layers.extend(threads.map(|what| (ProtectionLayer::Threads, what.to_owned())));
        layers.into_iter().map(|(layer, what)| Cover { layer, what }).collect()
    }

    /// Returns the gaps of the protection on this machine, and protection by a single layer: a sentence for each
    /// missing layer. Another sentence says if programs start slowly.
    pub fn protection_gaps(&self) -> Vec<String> {
        let gaps = self
            .missing
            .iter()
            .map(|missing| format!("lacks {missing}: {}", self.describe_missing(missing.layer)));
        let slow = self.warm.as_ref().err().map(|why| {
            format!("cannot fork an interpreter ({why}): each program starts its own, which takes longer")
        });
        gaps.chain(slow).collect()
    }

    /// Describes the consequence of a missing layer.
    fn describe_missing(&self, layer: ProtectionLayer) -> String {
        match layer {
            ProtectionLayer::Namespaces => {
                let landlock = self.landlock.as_ref();
                let mut alone: BTreeSet<&str> =
                    landlock.map(|landlock| landlock.uncovered_gaps()).into_iter().flatten().collect();
                alone.insert("the network");
                let alone = alone.into_iter().collect::<Vec<_>>().join(", ");
                format!(
                    "programs have no /tmp and see names and sizes of files; seccomp alone keeps them from {alone}"
                )
            }
            ProtectionLayer::Landlock => {
                "a program can execute others of the machine in the directories of libraries, such as those of /usr/lib; \
                 namespaces alone keep programs from files"
                    .to_owned()
            }
            ProtectionLayer::Seccomp => "there is no sandbox".to_owned(),
            ProtectionLayer::Threads if self.bounded => "the namespace alone bounds threads".to_owned(),
            ProtectionLayer::Threads => {
                "a program may start threads until its memory or time is over".to_owned()
            }
        }
    }
}
