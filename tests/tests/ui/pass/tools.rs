//! Functions as tools.

use maverl::__private::serde_json::{Map, Value, json};
use maverl::prelude::*;
use maverl::registry::Registry;
use maverl::tools::{declared_tools, schemars, serde};

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(crate = "maverl::tools::serde", rename_all = "snake_case")]
#[schemars(crate = "maverl::tools::schemars")]
enum Unit {
    /// Of water.
    Celsius,
    Fahrenheit,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(crate = "maverl::tools::serde")]
#[schemars(crate = "maverl::tools::schemars")]
struct City {
    /// Where.
    name: String,
    #[serde(default)]
    days: Option<u8>,
    unit: Unit,
}

/// Says what the weather will be.
///
/// It guesses.
#[tool(name = "weather_report")]
async fn weather(city: City) -> Result<String, String> {
    let unit = match city.unit {
        Unit::Celsius => "C",
        Unit::Fahrenheit => "F",
    };
    match city.name.as_str() {
        "" => Err("which city?".to_owned()),
        name => Ok(format!("{name}: 20 {unit} for {} days", city.days.unwrap_or(1))),
    }
}

/// Always the same.
#[tool]
fn seven() -> u32 {
    7
}

fn call(name: &str, arguments: Value) -> Result<String, String> {
    let Value::Object(arguments) = arguments else { panic!("{arguments}") };
    let call: fn(Map<String, Value>) -> _ = declared_tools()[name].call;
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(call(arguments))
}

#[test]
fn a_tool_is_registered_with_its_documentation_and_schema() {
    let entry = Registry::collect().unwrap().tools["weather_report"];
    assert_eq!(entry.declaration.summary, "Says what the weather will be.");
    let tool = declared_tools()["weather_report"].tool().unwrap();
    assert_eq!(tool.description, "Says what the weather will be.\n\nIt guesses.");
    let schema = tool.parameters.json();
    assert_eq!(schema["required"], json!(["name", "unit"]));
    assert_eq!(schema["properties"]["name"]["description"], "Where.");
    let check = |arguments: Value| tool.parameters.check(&arguments);
    assert_eq!(check(json!({"name": "Bern", "unit": "celsius", "days": null})), Ok(()));
    for wrong in [
        json!({"unit": "celsius"}),
        json!({"name": "Bern", "unit": "kelvin"}),
        json!({"name": "Bern", "unit": "celsius", "days": 300}),
        json!({"name": "Bern", "unit": "celsius", "hours": 3}),
    ] {
        assert!(check(wrong.clone()).is_err(), "{wrong}");
    }
}

#[test]
fn a_tool_is_called_with_arguments_and_gives_text() {
    let given = call("weather_report", json!({"name": "Bern", "unit": "celsius", "days": 3}));
    assert_eq!(given.as_deref(), Ok("Bern: 20 C for 3 days"));
    let error = call("weather_report", json!({"name": "", "unit": "fahrenheit"}));
    assert_eq!(error, Err("which city?".to_owned()));
    assert!(call("weather_report", json!({"name": "Bern"})).unwrap_err().contains("unit"));
    assert_eq!(call("seven", json!({})).as_deref(), Ok("7"));
}
