//! Servers of rewards: their settings.

use super::keys::check_key_env;
use crate::client::lacks_https;
use crate::config::source::{Problems, path, path_within};
use crate::config::{Config, RewardProtocol, RewardServerConfig};

/// Reports servers of rewards with invalid settings.
pub(crate) fn check_reward_servers(config: &Config, problems: &mut Problems<'_>) {
    for (name, reward) in config.rewards.iter().filter(|(_, reward)| reward.verifier.is_none()) {
        if let Some(given) = &reward.server {
            server(given, &path(["rewards", name, "server"]), problems);
        }
    }
}

fn server(server: &RewardServerConfig, table: &[String], problems: &mut Problems<'_>) {
    let RewardServerConfig { url, .. } = server;
    if !(url.starts_with("http://") || url.starts_with("https://")) {
        let message =
            format!("`url` of a server of rewards is {url:?}; it begins with http:// or https://");
        problems.value(&path_within(table, "url"), message, None);
    }
    if let Some(reason) = lacks_https(url) {
        let message = format!("`url` of a server of rewards {reason}");
        problems.value(&path_within(table, "url"), message, None);
    }
    check_key_env(server.key_env.as_deref(), table, problems);
    let most = match server.protocol {
        RewardProtocol::Score => usize::MAX,
        RewardProtocol::Rm => 1,
        RewardProtocol::Predict | RewardProtocol::GetReward => 0,
    };
    if server.send.len() > most {
        let message = match most {
            0 => "`send` has no effect: the protocol carries no data of tasks",
            _ => "`send` names several keys, and the protocol carries one, as `label`",
        };
        let help = "set `protocol = \"score\"`, or name fewer keys".to_owned();
        problems.value(&path_within(table, "send"), message.to_owned(), help);
    }
}
