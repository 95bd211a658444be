//! `builtin:facts`: a small invented encyclopedia, and questions about it.
//!
//! The facts describe a number of countries. A country has cities (one of them its capital), people who are born and
//! die in them, and works that they wrote; no fact links two countries. Each split asks about countries of its own, so
//! no fact behind a held-out question occurs in training. The corpus that a team searches contains the documents of all
//! countries.
//!
//! A question is a relation applied to a subject: "When was {} founded?". Applied to a name it takes one document to
//! answer; applied to a reference, "the birthplace of Ada Tovik", it takes two.
//!
//! Names are two syllables out of sixty, and years a century and a remainder out of thirty. The two letters that meet
//! in the middle of a name, and the two digits in the middle of a year, are adjacent nowhere else. A byte-pair
//! vocabulary trained on their [`pieces`] therefore encodes each in two tokens, and a small model can learn to copy
//! unseen names.

use serde_json::{Map, json};

use super::document::Document;
use crate::rng::SplitMix64;
use crate::task::Task;

/// Name of the data source in a configuration.
pub const NAME: &str = "builtin:facts";

/// Returns what the tasks are about, if data have this name; `None` for other data.
pub fn subject_of(data: &str) -> Option<&'static str> {
    (data == NAME).then_some("questions about documents")
}

/// Names of the splits.
pub const SPLITS: [&str; 3] = ["train", "validation", "test"];

const SEED: u64 = 20_260_211;
/// Number of countries of each split, in the order of [`SPLITS`].
const COUNTRIES: [usize; 3] = [20, 6, 9];
const CITIES: usize = 3;
const PEOPLE: usize = 8;
const WORKS: usize = 12;

const STARTS: [&str; 24] = [
    "Bav", "Bez", "Dov", "Dug", "Gav", "Hab", "Hov", "Juz", "Kag", "Kev", "Lab", "Lug", "Mag",
    "Mez", "Nab", "Nov", "Pag", "Pev", "Rab", "Rov", "Sab", "Sev", "Tag", "Vez",
];
const ENDS: [&str; 36] = [
    "dal", "dek", "dil", "dim", "dor", "dun", "fal", "fel", "fen", "fim", "fok", "fur", "kan",
    "kel", "kem", "kir", "kol", "kur", "mak", "mel", "mir", "mol", "mor", "mul", "nak", "nar",
    "nel", "nim", "nol", "nuk", "tak", "tek", "tel", "tim", "tol", "tur",
];
const FIRST_NAMES: [&str; 16] = [
    "Ada", "Ben", "Eva", "Ivo", "Leo", "Mia", "Noa", "Ola", "Pia", "Rex", "Sam", "Tom", "Uma",
    "Val", "Yan", "Zoe",
];
const PROFESSIONS: [&str; 10] = [
    "painter", "baker", "sailor", "doctor", "farmer", "singer", "teacher", "miner", "hunter",
    "judge",
];
const CRAFTS: [&str; 10] =
    ["glass", "wine", "silk", "salt", "bread", "bells", "tea", "honey", "cheese", "clocks"];
const COINS: [&str; 8] = ["crown", "mark", "ducat", "penny", "florin", "dollar", "lira", "rand"];
const FORMS: [&str; 4] = ["novel", "poem", "song", "play"];

/// Years in which cities were founded and works published: a century, then tens and ones that never form a century, and
/// vice versa.
const FOUNDED_IN: [usize; 5] = [10, 12, 13, 14, 15];
const PUBLISHED_IN: [usize; 4] = [16, 17, 18, 19];
const TENS: [usize; 6] = [2, 3, 4, 5, 6, 7];
const ONES: [usize; 4] = [0, 1, 8, 9];

/// A relation that a question asks for. Each phrasing has one `{}` for the subject.
struct Relation([&'static str; 2]);

const AUTHOR: Relation = Relation(["Who wrote {}?", "Who is the author of {}?"]);
const PUBLISHED: Relation = Relation(["When was {} published?", "In which year did {} come out?"]);
const BORN: Relation = Relation(["Where was {} born?", "In which city was {} born?"]);
const DIED: Relation = Relation(["Where did {} die?", "In which city did {} die?"]);
const PROFESSION: Relation =
    Relation(["What was the profession of {}?", "What did {} do for a living?"]);
const COUNTRY: Relation = Relation(["In which country is {}?", "To which country does {} belong?"]);
const FOUNDED: Relation = Relation(["When was {} founded?", "In which year was {} founded?"]);
const CRAFT: Relation = Relation(["What is {} known for?", "For what is {} known?"]);
const CAPITAL: Relation =
    Relation(["What is the capital of {}?", "Which city is the capital of {}?"]);
const COIN: Relation = Relation(["What coin is used in {}?", "With which coin do you pay in {}?"]);

/// References to a subject by another fact, the first of two hops.
const THE_AUTHOR: Relation = Relation(["the author of {}", "the person who wrote {}"]);
const THE_BIRTHPLACE: Relation = Relation(["the birthplace of {}", "the city where {} was born"]);
const THE_CAPITAL: Relation = Relation(["the capital of {}", "the capital city of {}"]);
const THE_COUNTRY: Relation = Relation(["the country of {}", "the country where {} is"]);

struct Country {
    name: String,
    coin: &'static str,
    /// The first is the capital.
    cities: Vec<City>,
    people: Vec<Person>,
    works: Vec<WrittenWork>,
}

struct City {
    name: String,
    founded: usize,
    craft: &'static str,
}

struct Person {
    name: String,
    profession: &'static str,
    /// Index into the country's cities.
    born: usize,
    /// Index of another city.
    died: usize,
}

struct WrittenWork {
    name: String,
    form: &'static str,
    /// Index into the country's people.
    author: usize,
    published: usize,
}

/// An encyclopedia with its questions. [`FactBase::builtin`] is the shipped one; others have the same names and forms
/// with different facts.
pub struct FactBase {
    seed: u64,
    countries: Vec<Country>,
}

/// Returns every document of the shipped encyclopedia, sorted by key.
pub fn corpus() -> Vec<Document> {
    FactBase::builtin().corpus()
}

/// Returns the questions of a split of the shipped encyclopedia; see [`FactBase::tasks`].
pub fn tasks(split: &str) -> Option<Vec<Task>> {
    FactBase::builtin().tasks(split)
}

impl FactBase {
    /// Generates the shipped encyclopedia.
    pub fn builtin() -> Self {
        Self::invent(SEED)
    }

    /// Generates the encyclopedia of a seed.
    pub fn invent(seed: u64) -> Self {
        let mut draw = SplitMix64::new(seed);
        let mut names: Vec<String> = STARTS
            .iter()
            .flat_map(|start| ENDS.iter().map(move |end| format!("{start}{end}")))
            .collect();
        draw.shuffle(&mut names);
        let countries =
            (0..COUNTRIES.iter().sum()).map(|_| Country::invent(&mut draw, &mut names)).collect();
        Self { seed, countries }
    }

    /// Returns every document, sorted by key.
    pub fn corpus(&self) -> Vec<Document> {
        let mut draw = SplitMix64::new(self.seed ^ 1);
        let mut documents: Vec<Document> =
            self.countries.iter().flat_map(|country| country.documents(&mut draw)).collect();
        documents.sort_by(|a, b| a.key.cmp(&b.key));
        documents
    }

    /// Returns the questions of a split of [`SPLITS`], with all kinds mixed; `None` for any other name.
    ///
    /// `data` of a task holds `answers`, `support` (keys of the documents that lead to the answer, in reading order)
    /// and `hops`.
    pub fn tasks(&self, split: &str) -> Option<Vec<Task>> {
        let index = SPLITS.iter().position(|name| *name == split)?;
        let first = COUNTRIES[..index].iter().sum();
        let mut draw = SplitMix64::new(self.seed ^ (2 + index as u64));
        let mut tasks: Vec<Task> = self.countries[first..first + COUNTRIES[index]]
            .iter()
            .flat_map(|country| country.tasks(&mut draw))
            .collect();
        draw.shuffle(&mut tasks);
        for (number, task) in tasks.iter_mut().enumerate() {
            task.id = format!("{split}-{number:04}");
        }
        Some(tasks)
    }
}

/// Splits a name or a year of this corpus into the two halves that a tokenizer should learn; `None` for any other word.
pub fn pieces(word: &str) -> Option<(&str, &str)> {
    let (start, end) = word.split_at_checked(word.len() / 2)?;
    let name = STARTS.contains(&start) && ENDS.contains(&end);
    let year = word.len() == 4 && word.bytes().all(|byte| byte.is_ascii_digit());
    (name || year).then_some((start, end))
}

fn year(draw: &mut SplitMix64, centuries: &[usize]) -> usize {
    100 * draw.pick(centuries) + 10 * draw.pick(&TENS) + draw.pick(&ONES)
}

fn take_name(names: &mut Vec<String>) -> String {
    names.pop().expect("there are more syllable pairs than things to name")
}

impl Country {
    fn invent(draw: &mut SplitMix64, names: &mut Vec<String>) -> Self {
        let country = take_name(names);
        let cities = (0..CITIES).map(|_| City {
            name: take_name(names),
            founded: year(draw, &FOUNDED_IN),
            craft: draw.pick(&CRAFTS),
        });
        let cities = cities.collect();
        let people = (0..PEOPLE).map(|_| {
            let born = draw.index(CITIES);
            Person {
                name: format!("{} {}", draw.pick(&FIRST_NAMES), take_name(names)),
                profession: draw.pick(&PROFESSIONS),
                born,
                died: (born + 1 + draw.index(CITIES - 1)) % CITIES,
            }
        });
        let people = people.collect();
        let works = (0..WORKS).map(|_| WrittenWork {
            name: take_name(names),
            form: draw.pick(&FORMS),
            author: draw.index(PEOPLE),
            published: year(draw, &PUBLISHED_IN),
        });
        let works = works.collect();
        Self { name: country, coin: draw.pick(&COINS), cities, people, works }
    }

    fn documents(&self, draw: &mut SplitMix64) -> Vec<Document> {
        let mut documents = vec![document(&self.name, self.text(draw))];
        for city in &self.cities {
            documents.push(document(&city.name, self.city_text(city, draw)));
        }
        for person in &self.people {
            documents.push(document(&person.name, self.person_text(person, draw)));
        }
        for work in &self.works {
            documents.push(document(&work.name, self.work_text(work, draw)));
        }
        documents
    }

    fn text(&self, draw: &mut SplitMix64) -> String {
        let (name, capital, coin) = (&self.name, &self.cities[0].name, self.coin);
        match draw.index(3) {
            0 => format!("{name} is a country with the capital {capital}. Its coin is the {coin}."),
            1 => format!("The capital of {name} is {capital}. People there pay with the {coin}."),
            _ => {
                format!("The country {name} uses the {coin} as its coin. {capital} is its capital.")
            }
        }
    }

    fn city_text(&self, city: &City, draw: &mut SplitMix64) -> String {
        let (City { name, founded, craft }, country) = (city, &self.name);
        match draw.index(3) {
            0 => format!(
                "{name} is a city in {country}, founded in {founded} and known for {craft}."
            ),
            1 => format!(
                "The city of {name} belongs to {country}. It is known for {craft} and dates from {founded}."
            ),
            _ => format!(
                "Founded in {founded}, the city {name} in {country} is famous for its {craft}."
            ),
        }
    }

    fn person_text(&self, person: &Person, draw: &mut SplitMix64) -> String {
        let Person { name, profession, .. } = person;
        let (born, died) = (&self.cities[person.born].name, &self.cities[person.died].name);
        match draw.index(3) {
            0 => format!("{name} was a {profession}, born in {born}, who died in {died}."),
            1 => format!("The {profession} {name} was a native of {born} and died in {died}."),
            _ => format!(
                "{name} worked as a {profession}. Place of birth: {born}. Place of death: {died}."
            ),
        }
    }

    fn work_text(&self, work: &WrittenWork, draw: &mut SplitMix64) -> String {
        let WrittenWork { name, form, published, .. } = work;
        let author = &self.people[work.author].name;
        match draw.index(3) {
            0 => format!("{name} is a {form} by {author}, published in {published}."),
            1 => format!("The {form} {name} was written by {author} and came out in {published}."),
            _ => format!("{author} is the author of the {form} {name} of {published}."),
        }
    }

    fn tasks(&self, draw: &mut SplitMix64) -> Vec<Task> {
        let mut asked = PhrasedQuestions { draw, tasks: Vec::new() };
        let Self { name, coin, cities, people, works } = self;
        let capital = &cities[0];
        asked.one_hop(&CAPITAL, name, name, &capital.name);
        asked.one_hop(&COIN, name, name, coin);
        asked.two_hop(&FOUNDED, (&THE_CAPITAL, name), [name, &capital.name], &capital.founded);
        asked.two_hop(&CRAFT, (&THE_CAPITAL, name), [name, &capital.name], &capital.craft);
        for city in cities {
            asked.one_hop(&COUNTRY, &city.name, &city.name, name);
            asked.one_hop(&FOUNDED, &city.name, &city.name, &city.founded);
            asked.one_hop(&CRAFT, &city.name, &city.name, &city.craft);
            asked.two_hop(&COIN, (&THE_COUNTRY, &city.name), [&city.name, name], coin);
        }
        for city in &cities[1..] {
            let via = (&THE_COUNTRY, city.name.as_str());
            asked.two_hop(&CAPITAL, via, [&city.name, name], &capital.name);
        }
        for person in people {
            let (born, died) = (&cities[person.born], &cities[person.died]);
            asked.one_hop(&BORN, &person.name, &person.name, &born.name);
            asked.one_hop(&DIED, &person.name, &person.name, &died.name);
            asked.one_hop(&PROFESSION, &person.name, &person.name, &person.profession);
            let (via, path) =
                ((&THE_BIRTHPLACE, person.name.as_str()), [&*person.name, &born.name]);
            asked.two_hop(&COUNTRY, via, path, name);
            asked.two_hop(&FOUNDED, via, path, &born.founded);
            asked.two_hop(&CRAFT, via, path, &born.craft);
        }
        for work in works {
            let author = &people[work.author];
            let subject = format!("the {} {}", work.form, work.name);
            asked.one_hop(&AUTHOR, &subject, &work.name, &author.name);
            asked.one_hop(&PUBLISHED, &subject, &work.name, &work.published);
            let (via, path) = ((&THE_AUTHOR, subject.as_str()), [&*work.name, &author.name]);
            asked.two_hop(&BORN, via, path, &cities[author.born].name);
            asked.two_hop(&DIED, via, path, &cities[author.died].name);
            asked.two_hop(&PROFESSION, via, path, &author.profession);
        }
        asked.tasks
    }
}

/// Questions with a phrasing sampled for each.
struct PhrasedQuestions<'a> {
    draw: &'a mut SplitMix64,
    tasks: Vec<Task>,
}

impl PhrasedQuestions<'_> {
    fn one_hop(&mut self, relation: &Relation, subject: &str, entity: &str, answer: &dyn ToString) {
        let question = self.phrase(relation, subject);
        self.push(question, &[entity], &answer.to_string());
    }

    fn two_hop(
        &mut self,
        relation: &Relation,
        (link, subject): (&Relation, &str),
        path: [&str; 2],
        answer: &dyn ToString,
    ) {
        let reference = self.phrase(link, subject);
        let question = self.phrase(relation, &reference);
        self.push(question, &path, &answer.to_string());
    }

    fn phrase(&mut self, relation: &Relation, subject: &str) -> String {
        self.draw.pick(&relation.0).replace("{}", subject)
    }

    fn push(&mut self, question: String, path: &[&str], answer: &str) {
        let support: Vec<String> = path.iter().map(|name| key(name)).collect();
        let data = Map::from_iter([
            ("answers".to_owned(), json!([answer])),
            ("support".to_owned(), json!(support)),
            ("hops".to_owned(), json!(path.len())),
        ]);
        let source = format!("facts/{}_hop", if path.len() == 1 { "one" } else { "two" });
        self.tasks.push(Task { id: String::new(), source, question, data });
    }
}

fn document(name: &str, text: String) -> Document {
    Document { key: key(name), title: name.to_owned(), text, contents: None }
}

fn key(name: &str) -> String {
    name.to_ascii_lowercase().replace(' ', "-")
}

#[cfg(test)]
mod tests;
