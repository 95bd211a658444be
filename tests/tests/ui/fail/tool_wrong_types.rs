use maverl::prelude::*;
use maverl::tools::NoArguments;

struct City {
    name: String,
}

/// Says what the weather is.
#[tool]
fn weather(city: City) -> String {
    city.name
}

struct Weather;

/// Gives what cannot be shown.
#[tool]
fn forecast(_: NoArguments) -> Weather {
    Weather
}

fn main() {}
