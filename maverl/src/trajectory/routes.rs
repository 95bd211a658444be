//! Experts of tokens in recorded turns: their number for each token, and the numbers in base64.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use maverl_engine::message::Routes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Written form.
#[derive(Serialize, Deserialize)]
struct WrittenRoutes {
    width: usize,
    experts: String,
}

/// Writes experts. None are left out.
pub(super) fn serialize<S: Serializer>(
    routes: &Option<Routes>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let written = routes.as_ref().map(|routes| WrittenRoutes {
        width: routes.width(),
        experts: BASE64_STANDARD.encode(routes.experts()),
    });
    written.serialize(serializer)
}

/// Reads experts.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Routes>, D::Error> {
    let Some(written) = Option::<WrittenRoutes>::deserialize(deserializer)? else {
        return Ok(None);
    };
    let experts = BASE64_STANDARD.decode(written.experts).map_err(de::Error::custom)?;
    let routes = Routes::new(experts, written.width);
    routes.map(Some).ok_or_else(|| de::Error::custom("`routes` are not whole tokens"))
}
