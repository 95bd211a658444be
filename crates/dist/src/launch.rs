//! Environment variables with which launchers give a process its rank.

use super::RankError;

/// First port of those that are derived from the name of a job, and their number.
const PORTS: (u64, u64) = (20_000, 10_000);
/// Port of rank 0 if neither the launcher nor the user names one, as in torchrun.
const PORT: u64 = 29_500;

/// Reader of environment variables.
type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A launcher, and its variables.
#[derive(Debug)]
struct Launcher {
    /// Name for messages.
    name: &'static str,
    /// Variable with the rank of the process.
    rank: &'static str,
    /// Variable with the number of ranks.
    size: &'static str,
    /// Variable with the rank among those of the machine.
    local_rank: &'static str,
    /// Variable with the number of ranks of the machine.
    local_size: &'static str,
    /// Variables that together name the job.
    job: &'static [&'static str],
}

/// Known launchers, in the order in which they are tried. `mpirun` starts its daemons with `srun` inside an allocation of
/// Slurm, so Slurm's variables count daemons there, and Open MPI is tried first.
const LAUNCHERS: [Launcher; 7] = [
    Launcher {
        name: "MAVERL_RANK",
        rank: "MAVERL_RANK",
        size: "MAVERL_RANKS",
        local_rank: "MAVERL_LOCAL_RANK",
        local_size: "MAVERL_LOCAL_RANKS",
        job: &["MAVERL_JOB"],
    },
    Launcher {
        name: "torchrun",
        rank: "RANK",
        size: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        local_size: "LOCAL_WORLD_SIZE",
        job: &["TORCHELASTIC_RUN_ID"],
    },
    Launcher {
        name: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
        job: &["PMIX_NAMESPACE"],
    },
    Launcher {
        // A batch script has `SLURM_NTASKS` and no step: what it runs without `srun` is one process.
        name: "srun",
        rank: "SLURM_PROCID",
        size: "SLURM_STEP_NUM_TASKS",
        local_rank: "SLURM_LOCALID",
        local_size: "SLURM_STEP_TASKS_PER_NODE",
        job: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
    },
    Launcher {
        name: "MPICH",
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local_rank: "MPI_LOCALRANKID",
        local_size: "MPI_LOCALNRANKS",
        job: &[],
    },
    Launcher {
        name: "Kubernetes",
        rank: "JOB_COMPLETION_INDEX",
        size: "MAVERL_RANKS",
        local_rank: "MAVERL_LOCAL_RANK",
        local_size: "MAVERL_LOCAL_RANKS",
        job: &["MAVERL_JOB"],
    },
    Launcher {
        // It starts one process on each machine.
        name: "SkyPilot",
        rank: "SKYPILOT_NODE_RANK",
        size: "SKYPILOT_NUM_NODES",
        local_rank: "MAVERL_LOCAL_RANK",
        local_size: "MAVERL_LOCAL_RANKS",
        job: &["SKYPILOT_TASK_ID"],
    },
];

/// Place of a process among those that were launched together.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Launch {
    /// Name of the launcher.
    pub launcher: &'static str,
    /// Rank of the process, from 0.
    pub rank: usize,
    /// Number of ranks, at least 2.
    pub size: usize,
    /// Rank among those of the machine, if known.
    pub local_rank: Option<usize>,
    /// Number of ranks of the machine, if known.
    pub local_size: Option<usize>,
    /// Address of rank 0 as the launcher gives it, `host:port`.
    pub address: Option<String>,
    /// Name of the job, which all its ranks have in common.
    pub job: String,
}

impl Launch {
    /// Reads the variables of the launcher of this process; `None` if it was not launched with others.
    ///
    /// # Errors
    ///
    /// If a variable is not valid.
    pub fn detect(get: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, RankError> {
        Self::find_launch(&|name| get(name).filter(|value| !value.is_empty()))
    }

    fn find_launch(get: Variables<'_>) -> Result<Option<Self>, RankError> {
        let mut launchers = LAUNCHERS.iter();
        match launchers.find(|of| get(of.rank).is_some() && get(of.size).is_some()) {
            Some(launcher) => Self::read(launcher, get),
            None if get("MAVERL_RANK").is_some() => Err(RankError::Launch {
                launcher: LAUNCHERS[0].name,
                reason: "`MAVERL_RANKS`, the number of ranks, is not set".to_owned(),
            }),
            None => Ok(None),
        }
    }

    fn read(launcher: &'static Launcher, get: Variables<'_>) -> Result<Option<Self>, RankError> {
        let rank = launcher.read_number(launcher.rank, get)?.unwrap_or(0);
        let size = launcher.read_number(launcher.size, get)?.unwrap_or(1);
        if rank >= size {
            let Launcher { name: launcher, rank: at, size: of, .. } = *launcher;
            let reason = format!("`{at}` is {rank} and `{of}` is {size}; ranks are counted from 0");
            return Err(RankError::Launch { launcher, reason });
        }
        if size == 1 {
            return Ok(None);
        }
        let local_rank = launcher.read_number(launcher.local_rank, get)?;
        // Slurm writes `4(x2),3`; only equal machines give a number.
        let local_size = get(launcher.local_size).and_then(|value| {
            value.split_once("(x").map_or(value.as_str(), |(one, _)| one).parse().ok()
        });
        let names = launcher.job.iter().filter_map(|name| get(name));
        let job = names.collect::<Vec<_>>().join(".");
        let mut launch = Self {
            launcher: launcher.name,
            rank,
            size,
            local_rank,
            local_size,
            address: None,
            job,
        };
        launch.address = launch.find_address(get);
        Ok(Some(launch))
    }

    /// Returns the address of rank 0: `MASTER_ADDR`, the first machine of Slurm's step or of SkyPilot's, or this machine if all
    /// ranks run on it.
    fn find_address(&self, get: Variables<'_>) -> Option<String> {
        let port = get("MASTER_PORT").unwrap_or_else(|| self.port().to_string());
        if let Some(host) = get("MASTER_ADDR") {
            return Some(format!("{host}:{port}"));
        }
        if self.local_size == Some(self.size) {
            return Some(format!("127.0.0.1:{port}"));
        }
        let first = match self.launcher {
            "srun" => first_machine(&get("SLURM_STEP_NODELIST")?),
            "SkyPilot" => get("SKYPILOT_NODE_IPS")?.lines().next()?.trim().to_owned(),
            _ => return None,
        };
        Some(format!("{first}:{port}"))
    }

    /// Returns the port of rank 0: a function of the job's name, so that jobs on one machine have different ones.
    fn port(&self) -> u64 {
        job_port(&self.job)
    }

    /// Returns a number that all ranks of the job have in common.
    pub(super) fn key(&self) -> u64 {
        hash(format!("{} {}", self.job, self.size).as_bytes())
    }
}

/// Returns the port of rank 0 of a job.
pub(super) fn job_port(job: &str) -> u64 {
    match job {
        "" => PORT,
        job => PORTS.0 + hash(job.as_bytes()) % PORTS.1,
    }
}

/// Computes FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Returns the first machine of a list of Slurm: `gpu07` of `gpu[07-09,12],login1`.
fn first_machine(list: &str) -> String {
    let bracket = list.find('[').filter(|&at| !list[..at].contains(','));
    match bracket {
        None => list.split(',').next().unwrap_or(list).to_owned(),
        Some(at) => {
            let number: String =
                list[at + 1..].chars().take_while(|c| c.is_ascii_alphanumeric()).collect();
            let after = list[at..].find(']').map_or("", |end| &list[at + end + 1..]);
            let suffix = after.split(',').next().unwrap_or_default();
            format!("{}{number}{suffix}", &list[..at])
        }
    }
}

/// Reads the number of a variable.
impl Launcher {
    /// Reads a variable that is a number, if it is set.
    fn read_number(&self, name: &str, get: Variables<'_>) -> Result<Option<usize>, RankError> {
        let Some(value) = get(name) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| RankError::Launch {
            launcher: self.name,
            reason: format!("`{name}` is {value:?}, not a number"),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn detect(variables: &[(&str, &str)]) -> Result<Option<Launch>, RankError> {
        Launch::detect(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn a_process_without_variables_or_with_one_rank_is_alone() {
        assert_eq!(detect(&[]).unwrap(), None);
        assert_eq!(detect(&[("RANK", "0"), ("WORLD_SIZE", "1")]).unwrap(), None);
        // A batch script has tasks and no step.
        assert_eq!(detect(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")]).unwrap(), None);
        // Every pod of an indexed job has an index.
        assert_eq!(detect(&[("JOB_COMPLETION_INDEX", "3")]).unwrap(), None);
    }

    #[test]
    fn torchrun_gives_rank_machine_and_address() {
        let launch = detect(&[
            ("RANK", "5"),
            ("WORLD_SIZE", "8"),
            ("LOCAL_RANK", "1"),
            ("LOCAL_WORLD_SIZE", "4"),
            ("MASTER_ADDR", "node-0"),
            ("MASTER_PORT", "29511"),
        ]);
        let launch = launch.unwrap().unwrap();
        assert_eq!((launch.rank, launch.size, launch.local_rank), (5, 8, Some(1)));
        assert_eq!(launch.address.as_deref(), Some("node-0:29511"));
    }

    #[test]
    fn mpirun_inside_slurm_is_open_mpi_and_its_ranks_on_one_machine_need_no_address() {
        let launch = detect(&[
            ("SLURM_PROCID", "0"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("OMPI_COMM_WORLD_RANK", "3"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
            ("PMIX_NAMESPACE", "prterun-a-17@1"),
        ]);
        let launch = launch.unwrap().unwrap();
        assert_eq!((launch.launcher, launch.rank, launch.size), ("Open MPI", 3, 4));
        let port: u64 =
            launch.address.unwrap().strip_prefix("127.0.0.1:").unwrap().parse().unwrap();
        assert!((PORTS.0..PORTS.0 + PORTS.1).contains(&port));
    }

    #[test]
    fn the_first_machine_of_slurms_step_has_rank_0() {
        let launch = detect(&[
            ("SLURM_PROCID", "9"),
            ("SLURM_STEP_NUM_TASKS", "16"),
            ("SLURM_STEP_TASKS_PER_NODE", "8(x2)"),
            ("SLURM_STEP_NODELIST", "gpu[07-08]"),
            ("SLURM_JOB_ID", "4711"),
            ("SLURM_STEP_ID", "0"),
        ]);
        let launch = launch.unwrap().unwrap();
        assert_eq!((launch.local_size, launch.job.as_str()), (Some(8), "4711.0"));
        assert!(launch.address.unwrap().starts_with("gpu07:"));
        let first = ["a1,a2", "gpu[07-09,12],login1", "n[3,5]-ib", "one"].map(first_machine);
        assert_eq!(first, ["a1", "gpu07", "n3-ib", "one"]);
    }

    #[test]
    fn an_indexed_job_with_a_number_of_ranks_is_launched_by_kubernetes() {
        let launch = detect(&[
            ("JOB_COMPLETION_INDEX", "3"),
            ("MAVERL_RANKS", "4"),
            ("MASTER_ADDR", "run-ranks-0-0.run"),
        ]);
        let launch = launch.unwrap().unwrap();
        assert_eq!((launch.launcher, launch.rank), ("Kubernetes", 3));
        assert_eq!(launch.address.as_deref(), Some("run-ranks-0-0.run:29500"));
    }

    #[test]
    fn wrong_variables_are_named_with_what_they_have_to_be() {
        let wrong = |variables: &[(&str, &str)]| detect(variables).unwrap_err().to_string();
        let text = wrong(&[("RANK", "4"), ("WORLD_SIZE", "4")]);
        assert!(text.contains("`RANK` is 4 and `WORLD_SIZE` is 4"), "{text}");
        let text = wrong(&[("RANK", "one"), ("WORLD_SIZE", "4")]);
        assert!(text.contains("`RANK` is \"one\", not a number"), "{text}");
        let text = wrong(&[("MAVERL_RANK", "1")]);
        assert!(text.contains("`MAVERL_RANKS`"), "{text}");
    }
}
