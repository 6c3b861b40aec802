//! Where values come from: the file, the environment, the flags, the later over the earlier.
//!
//! Sources give text; only the value that wins is parsed. Names are checked in every source, so that
//! a mistyped one cannot hide behind another source.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::problem::nearest;
use super::setting::Value;
use super::{Form, Origin, Problem, SETTINGS, Setting, ValueFlags};

/// What variables of the environment are called if they are ours.
const PREFIX: &str = "WANE_";

/// Names the settings file, where no flag does.
const CONFIG_VARIABLE: &str = "WANE_CONFIG";

/// Variables of the client, which a server leaves alone.
pub const CLIENT_VARIABLES: [&str; 4] = ["WANE_URL", "WANE_KEY", "WANE_ADMIN_URL", "WANE_CA"];

/// Variables of the test suite begin with this.
const TEST_PREFIX: &str = "WANE_TEST_";

/// The flags of `wane serve`: one for each setting, and those that are about the process.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ServeFlags {
    /// Read settings from this TOML file [env: WANE_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Print the settings with their reasons and origins as TOML, and end
    #[arg(long)]
    pub print_settings: bool,

    /// Write the addresses and the process id to this file once every port answers
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,

    #[command(flatten)]
    pub(super) values: ValueFlags,
}

/// A value as a source gives it.
#[derive(Debug)]
struct Text {
    origin: Origin,
    text: String,
    /// What it is in a file; elsewhere everything is text.
    form: WrittenAs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WrittenAs {
    Words,
    Toml(Form),
    /// A date, a fraction, a list or a section: no setting is one.
    OtherToml,
}

/// All that the sources gave, and what is wrong with it.
#[derive(Debug, Default)]
pub(super) struct Given {
    texts: BTreeMap<&'static str, Text>,
    problems: Vec<Problem>,
}

/// Reads every source.
pub(super) fn gather(
    flags: &ServeFlags,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Given {
    let mut variables: Vec<_> = environment
        .into_iter()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value))
        .filter(|(name, _)| is_ours(name))
        .collect();
    variables.sort();

    let mut given = Given::default();
    let variable =
        variables.iter().find(|(name, value)| name == CONFIG_VARIABLE && !value.is_empty());
    let variable = variable.map(|(_, value)| Path::new(value));
    if let Some(path) = flags.config.as_deref().or(variable) {
        given.add_file(path);
    }
    for (name, value) in variables {
        given.add_variable(name, value);
    }
    for (setting, text) in flags.values.texts() {
        let origin = Origin::Flag(setting.flag());
        given.add(setting, Text { origin, text: text.to_owned(), form: WrittenAs::Words });
    }
    given
}

fn is_ours(variable: &str) -> bool {
    variable.starts_with(PREFIX)
        && !variable.starts_with(TEST_PREFIX)
        && !CLIENT_VARIABLES.contains(&variable)
}

impl Given {
    fn add(&mut self, setting: &'static Setting, text: Text) {
        self.texts.insert(setting.name, text);
    }

    fn add_file(&mut self, path: &Path) {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(source) => {
                return self.problems.push(Problem::Unreadable { path: path.into(), source });
            }
        };
        let origin = |offset: usize| Origin::File {
            path: path.into(),
            line: text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1,
        };
        let table = match DeTable::parse(&text) {
            Ok(table) => table.into_inner(),
            Err(error) => {
                let origin = origin(error.span().map_or(0, |span| span.start));
                let reason = error.message().to_owned();
                return self.problems.push(Problem::NotToml { origin, reason });
            }
        };
        for (name, value) in table {
            let origin = origin(name.span().start);
            match Setting::named(name.get_ref()) {
                Some(setting) => {
                    let source = text.get(value.span()).unwrap_or_default();
                    self.add(setting, toml_text(value.get_ref(), source, origin));
                }
                None => self.add_unknown(name.get_ref(), origin),
            }
        }
    }

    fn add_unknown(&mut self, name: &str, origin: Origin) {
        let nearest = nearest(name, SETTINGS.iter().map(|setting| setting.name.to_owned()));
        self.problems.push(Problem::UnknownName { name: name.to_owned(), origin, nearest });
    }

    fn add_variable(&mut self, name: String, value: OsString) {
        if name == CONFIG_VARIABLE {
            return;
        }
        let Some(setting) = SETTINGS.iter().find(|setting| setting.variable() == name) else {
            let others = [CONFIG_VARIABLE].into_iter().chain(CLIENT_VARIABLES).map(str::to_owned);
            let nearest = nearest(&name, SETTINGS.iter().map(Setting::variable).chain(others));
            let origin = Origin::Environment(name.clone());
            return self.problems.push(Problem::UnknownName { name, origin, nearest });
        };
        // An empty variable is how many tools say "not set".
        if value.is_empty() {
            return;
        }
        let origin = Origin::Environment(name);
        match value.into_string() {
            Ok(text) => self.add(setting, Text { origin, text, form: WrittenAs::Words }),
            Err(value) => {
                let value = shown(setting, format!("{value:?}"));
                let advice = format!("it is not UTF-8; give {}", setting.legal());
                self.problems.push(Problem::Invalid {
                    setting: setting.name,
                    origin,
                    value,
                    advice,
                });
            }
        }
    }

    /// The value of `setting`: the one given, if it is legal, or the initial one.
    pub(super) fn take<V: Value>(&mut self, setting: &'static Setting) -> V {
        let Some(given) = self.texts.get(setting.name) else {
            return setting.initial_value();
        };
        match parse(given, setting) {
            Ok(value) => value,
            Err(advice) => {
                let value = match given.form {
                    WrittenAs::Words | WrittenAs::Toml(Form::Text) => format!("{:?}", given.text),
                    WrittenAs::Toml(_) | WrittenAs::OtherToml => {
                        given.text.replace(char::is_control, " ")
                    }
                };
                let (value, origin) = (shown(setting, value), given.origin.clone());
                let problem = Problem::Invalid { setting: setting.name, origin, value, advice };
                self.problems.push(problem);
                setting.initial_value()
            }
        }
    }

    /// Where each given value came from, and everything that is wrong.
    pub(super) fn finish(self) -> (BTreeMap<&'static str, Origin>, Vec<Problem>) {
        let origins = self.texts.into_iter().map(|(name, text)| (name, text.origin)).collect();
        (origins, self.problems)
    }
}

fn parse<V: Value>(given: &Text, setting: &Setting) -> Result<V, String> {
    match given.form {
        WrittenAs::Words => V::parse(&given.text, setting),
        WrittenAs::Toml(form) if form == setting.form => V::parse(&given.text, setting),
        WrittenAs::Toml(_) | WrittenAs::OtherToml => {
            Err(format!("a file writes it as {}; give {}", setting.form, setting.legal()))
        }
    }
}

fn toml_text(value: &DeValue<'_>, source: &str, origin: Origin) -> Text {
    let (text, form) = match value {
        DeValue::String(text) => (text.to_string(), WrittenAs::Toml(Form::Text)),
        DeValue::Integer(digits) => {
            let number = i128::from_str_radix(digits.as_str(), digits.radix());
            let text = number.map_or_else(|_| source.to_owned(), |number| number.to_string());
            (text, WrittenAs::Toml(Form::Number))
        }
        DeValue::Boolean(switch) => (switch.to_string(), WrittenAs::Toml(Form::Switch)),
        DeValue::Table(_) => ("a section".to_owned(), WrittenAs::OtherToml),
        DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Array(_) => {
            (source.to_owned(), WrittenAs::OtherToml)
        }
    };
    Text { origin, text, form }
}

/// A wrong value as an error may repeat it.
pub(super) fn shown(setting: &Setting, value: String) -> String {
    if setting.secret { "not shown, as it is secret".to_owned() } else { value }
}
