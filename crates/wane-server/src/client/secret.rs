//! Credentials as the client holds them: shown to the server, and to nobody by accident.

use std::fmt;

/// A credential `id.secret`. Printed for debugging it shows its id only.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// Shorter words are not looked for in texts: they would be found in ordinary ones.
const SHORTEST: usize = 8;

impl Secret {
    /// The credential as it is presented.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The part before the dot.
    pub fn id(&self) -> &str {
        self.0.split_once('.').map_or("", |(id, _)| id)
    }

    /// `text` without the secret, wherever it stands.
    pub fn masked(&self, text: &str) -> String {
        let secret = self.0.split_once('.').map_or(&*self.0, |(_, secret)| secret);
        if secret.len() < SHORTEST {
            return text.to_owned();
        }
        text.replace(secret, "***")
    }
}

impl From<&str> for Secret {
    /// Blanks around it are dropped: a file ends with a line feed.
    fn from(text: &str) -> Self {
        Self(text.trim().to_owned())
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self::from(&*text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({}.***)", self.id())
    }
}
