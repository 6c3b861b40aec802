//! The operator's calls for OAuth clients: which programs may ask for codes in the name of which
//! application.

use std::time::Duration;

use hyper::Method;
use serde::Deserialize;
use wane::services::apps::AppName;
use wane::services::device_auth::ClientId;

use super::admin::of_app;
use super::app_ttl::{Json, escaped};
use super::{Admin, ClientError, Secret};

/// What is registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewOAuthClient {
    /// Its id; the server draws one where there is none.
    pub id: Option<ClientId>,
    /// What people are told is asking.
    pub name: String,
    /// Whether it gets a secret.
    pub is_confidential: bool,
    /// What it may ask for.
    pub scopes: Vec<String>,
    /// How long its codes live; the server's choice where it is `None`.
    pub code_life: Option<Duration>,
    /// How long its tokens live; the server's choice where it is `None`.
    pub token_life: Option<Duration>,
}

/// A client that was just registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredClient {
    /// Its id.
    pub id: ClientId,
    /// Its secret, told this once; `None` for a public client.
    pub secret: Option<Secret>,
}

/// A client as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedClient {
    /// Its id.
    pub id: ClientId,
    /// What people are told is asking.
    pub name: String,
    /// Whether it has a secret.
    pub is_confidential: bool,
    /// What it may ask for.
    pub scopes: Vec<String>,
    /// How long its codes live.
    pub code_life: Duration,
    /// How long its tokens live.
    pub token_life: Duration,
}

/// Some of the clients, by id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedClients {
    /// The clients.
    pub clients: Vec<ListedClient>,
    /// After which to go on, if there are more.
    pub next: Option<ClientId>,
}

impl Admin {
    /// Registers a client of an application.
    pub async fn register_client(
        &self,
        app: &AppName,
        new: &NewOAuthClient,
    ) -> Result<RegisteredClient, ClientError> {
        let scopes: Vec<_> = new.scopes.iter().map(|scope| &**scope).collect();
        let mut body = Json::from_iter([
            ("owner".to_owned(), app.owner().into()),
            ("app".to_owned(), app.app().into()),
            ("name".to_owned(), (&*new.name).into()),
            ("confidential".to_owned(), new.is_confidential.into()),
            ("scopes".to_owned(), scopes.into()),
        ]);
        if let Some(id) = &new.id {
            body.insert("clientId".into(), id.as_str().into());
        }
        let lives = [("codeLifeSeconds", new.code_life), ("tokenLifeSeconds", new.token_life)];
        for (name, life) in lives {
            if let Some(life) = life {
                body.insert(name.into(), life.as_secs().into());
            }
        }
        let answer = self.write(Method::POST, "/oauth-clients", Some(body)).await?;
        answer.read_as(|form: RegisteredForm| {
            let secret = form.client_secret.map(Secret::from);
            Ok(RegisteredClient { id: client_id(&form.client_id)?, secret })
        })
    }

    /// Lists the clients of an application, the first ones or those after the id `after`.
    pub async fn clients(
        &self,
        app: &AppName,
        after: Option<&ClientId>,
    ) -> Result<ListedClients, ClientError> {
        let query = after.map(|after| format!("?after={}", escaped(after.as_str())));
        let path = format!("{}/oauth-clients{}", of_app(app), query.unwrap_or_default());
        self.read(&path).await?.read_as(|form: ClientsForm| {
            let clients: Result<_, _> = form.items.into_iter().map(ClientForm::meaning).collect();
            let next = form.next.as_deref().map(client_id).transpose()?;
            Ok(ListedClients { clients: clients?, next })
        })
    }

    /// Gives a confidential client another secret; the one before is wrong from then on.
    pub async fn rotate_secret(&self, app: &AppName, id: &ClientId) -> Result<Secret, ClientError> {
        let path = format!("{}/oauth-clients/{}/secret", of_app(app), escaped(id.as_str()));
        let answer = self.write(Method::POST, &path, None).await?;
        answer.read_as(|form: RegisteredForm| {
            form.client_secret.map(Secret::from).ok_or_else(|| "clientSecret is none".into())
        })
    }

    /// Removes a client: it starts nothing any more, and the tokens of devices that it linked are
    /// not good any more.
    pub async fn remove_client(&self, app: &AppName, id: &ClientId) -> Result<(), ClientError> {
        let path = format!("{}/oauth-clients/{}", of_app(app), escaped(id.as_str()));
        self.write(Method::DELETE, &path, None).await.map(drop)
    }
}

fn client_id(text: &str) -> Result<ClientId, String> {
    text.parse().map_err(|_| "clientId is none".into())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RegisteredForm {
    client_id: String,
    client_secret: Option<String>,
}

#[derive(Deserialize)]
struct ClientsForm {
    items: Vec<ClientForm>,
    next: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClientForm {
    client_id: String,
    name: String,
    confidential: bool,
    scopes: Vec<String>,
    code_life_seconds: u64,
    token_life_seconds: u64,
}

impl ClientForm {
    fn meaning(self) -> Result<ListedClient, String> {
        Ok(ListedClient {
            id: client_id(&self.client_id)?,
            name: self.name,
            is_confidential: self.confidential,
            scopes: self.scopes,
            code_life: Duration::from_secs(self.code_life_seconds),
            token_life: Duration::from_secs(self.token_life_seconds),
        })
    }
}
