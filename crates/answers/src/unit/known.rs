//! Units by name.

/// A known unit as a product of powers. Units are compared and never converted, so `ml` is `cm^3` and differs from `l`.
pub(crate) type Powers = &'static [(&'static str, i32)];

/// Names of units with their powers.
const KNOWN: &[(&str, Powers)] = &[
    ("mm millimeter millimeters millimetre millimetres", &[("mm", 1)]),
    ("cm cms centimeter centimeters centimetre centimetres", &[("cm", 1)]),
    ("dm decimeter decimeters decimetre decimetres", &[("dm", 1)]),
    ("m meter meters metre metres", &[("m", 1)]),
    ("km kms kilometer kilometers kilometre kilometres", &[("km", 1)]),
    ("nm nanometer nanometers", &[("nm", 1)]),
    ("in inch inches", &[("in", 1)]),
    ("ft foot feet", &[("ft", 1)]),
    ("yd yds yard yards", &[("yd", 1)]),
    ("mi mile miles", &[("mi", 1)]),
    ("unit units", &[("unit", 1)]),
    ("acre acres", &[("acre", 1)]),
    ("ha hectare hectares", &[("ha", 1)]),
    ("sqft", &[("ft", 2)]),
    ("sqm", &[("m", 2)]),
    ("l L liter liters litre litres", &[("dm", 3)]),
    ("ml milliliter milliliters millilitre millilitres cc", &[("cm", 3)]),
    ("gal gallon gallons", &[("gal", 1)]),
    ("qt qts quart quarts", &[("qt", 1)]),
    ("pint pints", &[("pint", 1)]),
    ("cup cups", &[("cup", 1)]),
    ("tbsp tablespoon tablespoons", &[("tbsp", 1)]),
    ("tsp teaspoon teaspoons", &[("tsp", 1)]),
    ("mg milligram milligrams", &[("mg", 1)]),
    ("g gram grams", &[("g", 1)]),
    ("kg kgs kilogram kilograms kilo kilos", &[("kg", 1)]),
    ("lb lbs pound pounds", &[("lb", 1)]),
    ("oz ounce ounces", &[("oz", 1)]),
    ("ton tons", &[("ton", 1)]),
    ("tonne tonnes", &[("tonne", 1)]),
    ("ms millisecond milliseconds", &[("ms", 1)]),
    ("s sec secs second seconds", &[("s", 1)]),
    ("min mins minute minutes", &[("min", 1)]),
    ("h hr hrs hour hours", &[("h", 1)]),
    ("d day days", &[("d", 1)]),
    ("week weeks", &[("week", 1)]),
    ("month months", &[("month", 1)]),
    ("yr yrs year years", &[("year", 1)]),
    ("decade decades", &[("decade", 1)]),
    ("century centuries", &[("century", 1)]),
    ("am", &[("am", 1)]),
    ("pm", &[("pm", 1)]),
    ("° deg degree degrees", &[("°", 1)]),
    ("rad rads radian radians", &[("rad", 1)]),
    ("celsius centigrade", &[("°C", 1)]),
    ("fahrenheit", &[("°F", 1)]),
    ("kelvin kelvins", &[("K", 1)]),
    ("mph", &[("mi", 1), ("h", -1)]),
    ("kph kmh kmph", &[("km", 1), ("h", -1)]),
    ("fps", &[("ft", 1), ("s", -1)]),
    ("knot knots", &[("knot", 1)]),
    ("rpm", &[("rpm", 1)]),
    ("$ dollar dollars usd buck bucks", &[("$", 1)]),
    ("¢ cent cents", &[("cent", 1)]),
    ("€ euro euros eur", &[("€", 1)]),
    ("£ gbp", &[("£", 1)]),
    ("¥ yen yuan", &[("¥", 1)]),
    ("₹ rupee rupees rs inr", &[("₹", 1)]),
    ("N newton newtons", &[("N", 1)]),
    ("J joule joules", &[("J", 1)]),
    ("kJ kilojoule kilojoules", &[("kJ", 1)]),
    ("cal calorie calories", &[("cal", 1)]),
    ("kcal kilocalorie kilocalories", &[("kcal", 1)]),
    ("W watt watts", &[("W", 1)]),
    ("kW kilowatt kilowatts", &[("kW", 1)]),
    ("MW megawatt megawatts", &[("MW", 1)]),
    ("hp horsepower", &[("hp", 1)]),
    ("V volt volts", &[("V", 1)]),
    ("A amp amps ampere amperes", &[("A", 1)]),
    ("Ω ohm ohms", &[("Ω", 1)]),
    ("Hz hertz", &[("Hz", 1)]),
    ("kHz kilohertz", &[("kHz", 1)]),
    ("MHz megahertz", &[("MHz", 1)]),
    ("Pa pascal pascals", &[("Pa", 1)]),
    ("kPa", &[("kPa", 1)]),
    ("atm atmosphere atmospheres", &[("atm", 1)]),
    ("mol mole moles", &[("mol", 1)]),
    ("bit bits", &[("bit", 1)]),
    ("B byte bytes", &[("B", 1)]),
    ("KB kilobyte kilobytes", &[("KB", 1)]),
    ("MB megabyte megabytes", &[("MB", 1)]),
    ("GB gigabyte gigabytes", &[("GB", 1)]),
    ("TB terabyte terabytes", &[("TB", 1)]),
];
/// Abbreviations that could be products of letters; they are units after a number and a space.
const ABBREVIATIONS: &str =
    "in ha dm nm mL yd yds qt hrs deg sq cu hp kW MW Hz GB MB KB cc ms kJ Pa am pm AM PM";
/// Letters that are units if the other answer has a unit: `12 m`.
const LETTERS: &str = "m s g h l L N J W V A K d";
/// Currencies.
pub(crate) const MONEY: [&str; 6] = ["$", "cent", "€", "£", "¥", "₹"];

/// Returns true if a word is a unit after a number and a space, although its letters could be a product.
pub(crate) fn is_abbreviation(word: &str) -> bool {
    ABBREVIATIONS.split(' ').any(|other| other == word)
}

/// Returns true if a word is a unit of one letter.
pub(crate) fn is_letter(word: &str) -> bool {
    LETTERS.split(' ').any(|other| other == word)
}

/// Returns the power of length in a unit of length, area or volume; `None` for other units.
pub(crate) fn length_power(name: &str) -> Option<i32> {
    match name {
        "mm" | "cm" | "dm" | "m" | "km" | "nm" | "in" | "ft" | "yd" | "mi" | "unit" => Some(1),
        "acre" | "ha" => Some(2),
        "gal" | "qt" | "pint" | "cup" | "tbsp" | "tsp" => Some(3),
        _ => None,
    }
}

/// Returns the unit that a word names: first case-sensitively, then case-insensitively.
pub(crate) fn lookup_unit(word: &str) -> Option<Powers> {
    let word = word.trim_end_matches('.');
    // `M` is not a meter.
    find_exactly(word).or_else(|| find_exactly(&word.to_lowercase()).filter(|_| word.len() > 1))
}

/// Returns the unit that a word names in this case.
fn find_exactly(word: &str) -> Option<Powers> {
    let mut known = KNOWN.iter();
    let (_, powers) = known.find(|(names, _)| names.split(' ').any(|name| name == word))?;
    Some(*powers)
}
