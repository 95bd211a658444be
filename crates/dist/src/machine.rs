//! A machine on which one process starts all ranks.

use std::net::{Ipv4Addr, TcpListener};

use super::launch::job_port;
use super::{Launch, RankError};

/// Names that are tried for a job on one machine.
const NAMES: usize = 100;

/// Place of a machine among those of a job, of which each starts as many ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    rank: usize,
    count: usize,
    /// Address of rank 0, `host:port`, if known.
    address: Option<String>,
    /// Name of the job.
    job: String,
}

impl Machine {
    /// Returns the machine of a process that a launcher started as the only one on it, or that was started without a launcher.
    ///
    /// # Errors
    ///
    /// If the launcher started others on the machine.
    pub fn of_process(launch: Option<&Launch>) -> Result<Self, RankError> {
        let Some(launch) = launch else { return Ok(Self::alone()) };
        if let Some(size) = launch.local_size.filter(|&size| size > 1) {
            let reason = format!(
                "it has started {size} processes on this machine; with `--ranks-per-node`, let it start one on each"
            );
            return Err(RankError::Launch { launcher: launch.launcher, reason });
        }
        let Launch { rank, size: count, address, job, .. } = launch.clone();
        Ok(Self { rank, count, address, job })
    }

    /// Returns the only machine of a job. The name of the job gives rank 0 a free port.
    fn alone() -> Self {
        let names = (0..NAMES).map(|i| format!("machine-{}-{i}", std::process::id()));
        let job = names.into_iter().find(|job| is_free(job_port(job))).unwrap_or_default();
        Self { rank: 0, count: 1, address: None, job }
    }

    /// Returns the number of the machine's first rank, if each machine starts so many.
    pub fn first_rank(&self, per_machine: usize) -> usize {
        self.rank * per_machine
    }

    /// Returns the variables with which a rank of this machine finds the others.
    pub fn variables(&self, local: usize, per_machine: usize) -> Vec<(&'static str, String)> {
        let mut variables = vec![
            ("MAVERL_RANK", (self.first_rank(per_machine) + local).to_string()),
            ("MAVERL_RANKS", (self.count * per_machine).to_string()),
            ("MAVERL_LOCAL_RANK", local.to_string()),
            ("MAVERL_LOCAL_RANKS", per_machine.to_string()),
            ("MAVERL_JOB", self.job.clone()),
        ];
        if let Some((host, port)) = self.address.as_ref().and_then(|at| at.rsplit_once(':')) {
            variables.push(("MASTER_ADDR", host.to_owned()));
            variables.push(("MASTER_PORT", port.to_owned()));
        }
        variables
    }
}

/// Returns true if a server of this machine can have the port.
fn is_free(port: u64) -> bool {
    u16::try_from(port).is_ok_and(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn launch(variables: &[(&str, &str)]) -> Option<Launch> {
        let get = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Launch::detect(get).unwrap()
    }

    /// Returns the launch that a rank of a machine reads from its variables.
    fn read(machine: &Machine, local: usize, per_machine: usize) -> Launch {
        let variables = machine.variables(local, per_machine);
        let variables: Vec<(&str, &str)> =
            variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        launch(&variables).unwrap()
    }

    #[test]
    fn the_ranks_of_a_machine_without_a_launcher_meet_on_it_at_a_free_port() {
        let machine = Machine::of_process(None).unwrap();
        let [first, last] = [0, 3].map(|local| read(&machine, local, 4));
        assert_eq!((first.rank, last.rank, last.size, last.local_size), (0, 3, 4, Some(4)));
        assert!(first.address.as_deref().unwrap().starts_with("127.0.0.1:"));
        assert_eq!((&first.address, first.key()), (&last.address, last.key()));
    }

    #[test]
    fn the_ranks_of_several_machines_of_skypilot_meet_at_the_first() {
        let ips = "10.0.0.4\n10.0.0.5";
        let of = |rank| {
            let launch = launch(&[
                ("SKYPILOT_NODE_RANK", rank),
                ("SKYPILOT_NUM_NODES", "2"),
                ("SKYPILOT_NODE_IPS", ips),
                ("SKYPILOT_TASK_ID", "sky-managed-7"),
            ]);
            Machine::of_process(launch.as_ref()).unwrap()
        };
        let [first, second] = ["0", "1"].map(of);
        let (leader, other) = (read(&first, 0, 8), read(&second, 5, 8));
        assert_eq!((leader.rank, other.rank, other.size, other.local_rank), (0, 13, 16, Some(5)));
        assert!(leader.address.as_deref().unwrap().starts_with("10.0.0.4:"));
        assert_eq!((&leader.address, leader.key()), (&other.address, other.key()));
    }

    #[test]
    fn a_machine_on_which_a_launcher_started_several_processes_is_refused() {
        let launch = launch(&[
            ("SLURM_PROCID", "0"),
            ("SLURM_STEP_NUM_TASKS", "4"),
            ("SLURM_STEP_TASKS_PER_NODE", "2(x2)"),
        ]);
        let error = Machine::of_process(launch.as_ref()).unwrap_err().to_string();
        assert!(error.contains("srun") && error.contains("2 processes"), "{error}");
    }
}
