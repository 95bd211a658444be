//! Memory that is available to this process.

use std::path::{Path, PathBuf};

/// Returns the available bytes: the minimum of the machine's memory and the limit of each control group around this
/// process. `None` if the system does not report them.
pub fn available_memory() -> Option<u64> {
    bytes(|path| std::fs::read_to_string(path).ok())
}

fn bytes(read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| total(&text));
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = files(&groups).into_iter().filter_map(|path| read(&path)?.trim().parse().ok());
    // Version 1 of control groups writes a number near the maximum for no limit.
    limits.chain(machine).min()
}

/// Parses `MemTotal: 16384 kB`.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// Returns the files that may hold a limit: of each group up to the root, in both versions of control groups. A group
/// that is not mounted here, as in a container, is the one at the root.
fn files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(kind), Some(group)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let (root, file) = match kind {
            "" => ("/sys/fs/cgroup", "memory.max"),
            kind if kind.split(',').any(|kind| kind == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = Path::new(group.trim_start_matches('/'));
        files.extend(group.ancestors().map(|group| Path::new(root).join(group).join(file)));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Option<u64> {
        bytes(|path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn the_memory_is_what_the_tightest_limit_leaves() {
        let machine = ("/proc/meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\n");
        assert_eq!(of(&[machine]), Some(16 << 20));
        let v2 = ("/proc/self/cgroup", "0::/user.slice/run.scope\n");
        let parent = ("/sys/fs/cgroup/user.slice/memory.max", "4194304\n");
        let own = ("/sys/fs/cgroup/user.slice/run.scope/memory.max", "max\n");
        assert_eq!(of(&[machine, v2, own]), Some(16 << 20));
        assert_eq!(of(&[machine, v2, own, parent]), Some(4 << 20));
        // In a container, the group is mounted at the root.
        let container = ("/sys/fs/cgroup/memory.max", "2097152\n");
        assert_eq!(of(&[machine, ("/proc/self/cgroup", "0::/\n"), container]), Some(2 << 20));
        assert_eq!(of(&[machine, v2, container]), Some(2 << 20));
        let v1 = ("/proc/self/cgroup", "5:cpu:/x\n4:hugetlb,memory:/docker/1\n");
        let limit = ("/sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "1048576");
        assert_eq!(of(&[machine, v1, limit]), Some(1 << 20));
        let none = ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
        assert_eq!(of(&[machine, v1, none]), Some(16 << 20));
        assert_eq!(of(&[]), None);
    }
}
