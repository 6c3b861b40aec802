//! What an entry of the table is, and the macro that makes everything else of it.

use std::fmt;
use std::ops::RangeInclusive;

use clap::builder::ValueRange;

/// How a TOML file writes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// In quotes.
    Text,
    /// A whole number, bare.
    Number,
    /// `true` or `false`, bare.
    Switch,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text in quotes",
            Self::Number => "a whole number without quotes",
            Self::Switch => "true or false without quotes",
        })
    }
}

/// The value of a setting that nobody gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initial {
    /// This one, written as in the environment.
    Is(&'static str),
    /// None; and what that means.
    Unset(&'static str),
}

/// One entry of the table.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The name in a file.
    pub name: &'static str,
    /// Why there is such a setting, as one sentence.
    pub why: &'static str,
    /// Its value where nobody gave one.
    pub initial: Initial,
    /// How a file writes it.
    pub form: Form,
    /// The unit of a number, or empty.
    pub unit: &'static str,
    /// What stands for the value in the help.
    pub value_name: &'static str,
    /// The bounds of a number.
    pub range: RangeInclusive<u64>,
    /// Neither printed nor repeated in errors.
    pub secret: bool,
    environment: Option<&'static str>,
    legal: fn(&Setting) -> String,
}

/// What a setting can hold: parsed once, here, and legal ever after.
pub(super) trait Value: Sized {
    /// How a file writes it.
    const FORM: Form;
    /// What stands for it in the help.
    const NAME: &'static str;
    /// The unit of a number.
    const UNIT: &'static str = "";
    /// Whether it must never be shown.
    const SECRET: bool = false;

    /// What is legal, to follow the word "give".
    fn legal(setting: &Setting) -> String;

    /// The value that `text` writes, or else what to do about it.
    fn parse(text: &str, setting: &Setting) -> Result<Self, String>;

    /// The text that parses to this value, or nothing where it is not set.
    fn write(&self) -> Option<String>;

    /// The value that means "not set", of those that have one.
    fn unset() -> Option<Self> {
        None
    }
}

impl Setting {
    pub(super) const fn of<V: Value>(
        name: &'static str,
        why: &'static str,
        initial: Initial,
    ) -> Self {
        Self {
            name,
            why: why.trim_ascii(),
            initial,
            form: V::FORM,
            unit: V::UNIT,
            value_name: V::NAME,
            range: 0..=u64::MAX,
            secret: V::SECRET,
            environment: None,
            legal: V::legal,
        }
    }

    pub(super) const fn within(mut self, range: RangeInclusive<u64>) -> Self {
        self.range = range;
        self
    }

    pub(super) const fn environment(mut self, variable: &'static str) -> Self {
        self.environment = Some(variable);
        self
    }

    /// The entry called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        super::SETTINGS.iter().find(|setting| setting.name == name)
    }

    /// The name in the environment.
    #[must_use]
    pub fn variable(&self) -> String {
        let derived = || format!("WANE_{}", self.name.to_ascii_uppercase());
        self.environment.map_or_else(derived, str::to_owned)
    }

    /// The flag.
    #[must_use]
    pub fn flag(&self) -> String {
        format!("--{}", self.name.replace('_', "-"))
    }

    /// What is legal, to follow the word "give".
    #[must_use]
    pub fn legal(&self) -> String {
        (self.legal)(self)
    }

    /// The line of `wane serve --help`.
    pub(super) fn help(&self) -> String {
        let why = self.why.trim_end_matches('.');
        let initial = match self.initial {
            Initial::Is(text) => text,
            Initial::Unset(meaning) => meaning,
        };
        format!("{why} [env: {}] [default: {initial}]", self.variable())
    }

    /// A switch may stand alone; `--switch=false` takes back what a file says.
    pub(super) fn flag_values(&self) -> ValueRange {
        match self.form {
            Form::Switch => (0..=1).into(),
            Form::Text | Form::Number => 1.into(),
        }
    }

    /// The value where nobody gave one.
    pub(super) fn initial_value<V: Value>(&self) -> V {
        let value = match self.initial {
            Initial::Is(text) => V::parse(text, self).ok(),
            Initial::Unset(_) => V::unset(),
        };
        value.expect("a test takes every initial value")
    }
}

/// The table as a type, as a list, as flags and as what takes values out of the sources.
///
/// An entry is `/// why`, `name: Type = initial`, then options of [`Setting`] by their name.
macro_rules! settings {
    ($(
        $(#[doc = $why:literal])+
        $name:ident: $type:ty = $initial:expr $(, $option:ident $argument:expr)*;
    )+) => {
        /// Every setting, by the name it has everywhere; a name in `_ms` is a [`Duration`] here.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Settings {
            $( $(#[doc = $why])+ pub $name: $type, )+
        }

        /// The table.
        pub static SETTINGS: [Setting; [$(stringify!($name)),+].len()] = [$(
            Setting::of::<$type>(stringify!($name), concat!($($why),+), $initial)
                $(.$option($argument))*
        ),+];

        impl Default for Settings {
            fn default() -> Self {
                let [$($name),+] = &SETTINGS;
                Self { $($name: $name.initial_value()),+ }
            }
        }

        impl Settings {
            /// Initial values stand in for those that are reported as wrong.
            fn take_from(given: &mut $crate::settings::sources::Given) -> Self {
                let [$($name),+] = &SETTINGS;
                Self { $($name: given.take($name)),+ }
            }

            /// Each setting with its text, in the order of the table.
            fn texts(&self) -> Vec<(&'static Setting, Option<String>)> {
                use $crate::settings::setting::Value as _;
                let [$($name),+] = &SETTINGS;
                vec![$(($name, self.$name.write())),+]
            }
        }

        #[derive(Debug, Clone, Default, clap::Args)]
        struct ValueFlags {
            $(
                #[arg(
                    long,
                    help = entry(stringify!($name)).help(),
                    value_name = entry(stringify!($name)).value_name,
                    num_args = entry(stringify!($name)).flag_values(),
                    require_equals = entry(stringify!($name)).form == Form::Switch,
                    default_missing_value = "true"
                )]
                $name: Option<String>,
            )+
        }

        impl ValueFlags {
            /// Each flag that was given, with its text.
            fn texts(&self) -> impl Iterator<Item = (&'static Setting, &str)> {
                let [$($name),+] = &SETTINGS;
                [$(($name, self.$name.as_deref())),+]
                    .into_iter()
                    .filter_map(|(setting, text)| Some((setting, text?)))
            }
        }

        fn entry(name: &str) -> &'static Setting {
            Setting::named(name).expect("flags and table are made of one list")
        }
    };
}

pub(super) use settings;
