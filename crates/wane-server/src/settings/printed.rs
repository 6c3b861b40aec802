//! Settings as `--print-settings` shows them: TOML that, given back, yields the same settings.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Form, Initial, Origin, Setting, Settings};

/// Settings that a server may start with, and where each came from.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The settings.
    pub settings: Settings,
    pub(super) origins: BTreeMap<&'static str, Origin>,
}

impl Loaded {
    /// Where the value of the setting called `name` came from.
    #[must_use]
    pub fn origin(&self, name: &str) -> &Origin {
        self.origins.get(name).unwrap_or(&Origin::Default)
    }

    /// A settings file that gives these settings, with the reason and origin of each.
    #[must_use]
    pub fn print_settings(&self) -> String {
        let mut file = "# Settings of wane serve: a file for --config or WANE_CONFIG.\n".to_owned();
        for (setting, text) in self.settings.texts() {
            file.push('\n');
            file.push_str(&paragraph(setting, text.as_deref(), self.origin(setting.name)));
        }
        file
    }
}

/// The lines of one setting.
pub(super) fn paragraph(setting: &Setting, text: Option<&str>, origin: &Origin) -> String {
    let mut lines = format!("# {}\n", setting.why);
    let unit = match setting.unit {
        "" => String::new(),
        unit => format!(" Unit: {unit}."),
    };
    // A file may have a line break in its name.
    let origin = origin.to_string().replace(char::is_control, " ");
    let written = writeln!(lines, "# Legal: {}.{unit} From: {origin}.", setting.legal());
    let written = written.and_then(|()| match (text, setting.initial) {
        (Some(_), _) if setting.secret => writeln!(lines, "# {} is set, and secret", setting.name),
        (Some(text), _) => writeln!(lines, "{} = {}", setting.name, literal(setting.form, text)),
        (None, Initial::Unset(meaning)) => {
            writeln!(lines, "# {} is not set: {meaning}", setting.name)
        }
        (None, Initial::Is(_)) => writeln!(lines, "# {} is not set", setting.name),
    });
    written.expect("writing to memory cannot fail");
    lines
}

fn literal(form: Form, text: &str) -> String {
    match form {
        Form::Number | Form::Switch => text.to_owned(),
        Form::Text => quoted(text),
    }
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            _ if c.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            _ => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
