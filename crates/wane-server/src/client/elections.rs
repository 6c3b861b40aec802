//! Calls of elections: one method per step, with the answers of the service itself.
//!
//! Losing is an answer here as it is there. A [`Seat`] is a lease at a server, for a
//! [`Leader`](wane::services::elections::Leader) to keep.

use std::time::Duration;

use hyper::Method;
use serde::Deserialize;
use wane::services::apps::AppName;
use wane::services::elections::{
    Ballot, Campaigned, Lease, LeaseId, Renewed, Resigned, Standing, Token,
};
use wane::store::Timestamp;

use super::app_ttl::{Json, escaped, put_ttl};
use super::events::{Heard, Stream};
use super::exchange::{Answer, Call, Effect};
use super::{Client, ClientError};

/// The elections of one application, over HTTP.
#[derive(Debug, Clone)]
pub struct Elections {
    client: Client,
    path: String,
}

impl Elections {
    pub(super) fn new(client: Client, app: &AppName) -> Self {
        let path = format!("/api/v2/apps/{}/{}/elections", app.owner(), app.app());
        Self { client, path }
    }

    /// Takes the election for `holder` where nobody holds it.
    pub async fn campaign(
        &self,
        name: &str,
        holder: &str,
        ttl: Duration,
    ) -> Result<Campaigned, ClientError> {
        let mut body = Json::from_iter([("holder".to_owned(), holder.into())]);
        put_ttl(&mut body, ttl);
        match self.step(name, "campaign", body).await {
            Ok(answer) => answer.read_as(|won: WonForm| won.meaning(ttl)).map(Campaigned::Won),
            Err(ClientError::Contested { standing, .. }) => Ok(Campaigned::Held(standing)),
            Err(error) => Err(error),
        }
    }

    /// Moves the end of a lease that has not ended.
    pub async fn renew(&self, name: &str, lease: &Lease) -> Result<Renewed, ClientError> {
        match self.step(name, "renew", named(lease.id, lease.token)).await {
            Ok(answer) => {
                answer.read_as(|won: WonForm| won.meaning(lease.ttl)).map(Renewed::Renewed)
            }
            Err(ClientError::Contested { standing, .. }) => Ok(Renewed::Lost(Some(standing))),
            Err(ClientError::Refused { .. }) => Ok(Renewed::Lost(None)),
            Err(error) => Err(error),
        }
    }

    /// Ends a lease. Give up acting on it before you call this.
    pub async fn resign(
        &self,
        name: &str,
        id: LeaseId,
        token: Token,
    ) -> Result<Resigned, ClientError> {
        match self.step(name, "resign", named(id, token)).await {
            Ok(_) => Ok(Resigned::Resigned),
            Err(ClientError::Contested { standing, .. }) => Ok(Resigned::Lost(Some(standing))),
            Err(ClientError::Refused { .. }) => Ok(Resigned::Lost(None)),
            Err(error) => Err(error),
        }
    }

    /// Where the election stands.
    pub async fn observe(&self, name: &str) -> Result<Standing, ClientError> {
        let answer = self.client.exchange(Call::get(self.at(name), Effect::Read)).await?;
        answer.read_as(StandingForm::meaning)
    }

    /// Watches who holds the election.
    pub async fn watch(&self, name: &str) -> Result<ElectionWatch, ClientError> {
        let path = format!("{}/watch", self.at(name));
        Stream::open(&self.client, path, None).await.map(ElectionWatch)
    }

    async fn step(&self, name: &str, step: &str, body: Json) -> Result<Answer, ClientError> {
        let path = format!("{}/{step}", self.at(name));
        self.client.exchange(Call::new(Method::POST, path, Effect::Write).json(body)).await
    }

    fn at(&self, name: &str) -> String {
        format!("{}/{}", self.path, escaped(name))
    }
}

fn named(id: LeaseId, token: Token) -> Json {
    Json::from_iter([
        ("leaseId".to_owned(), id.to_string().into()),
        ("token".to_owned(), token.get().into()),
    ])
}

/// A watch over one election. Dropping it ends it.
#[derive(Debug)]
pub struct ElectionWatch(Stream);

impl ElectionWatch {
    /// Waits for the next change of hands; at first, and after a lost connection, says where the
    /// election stands. After an error the watch has ended.
    pub async fn changed(&mut self) -> Result<Standing, ClientError> {
        loop {
            // A stream that begins anew begins with where the election stands.
            let Heard::Event(event) = self.0.next().await? else { continue };
            if event.kind == "changed" {
                let protocol = |reason| ClientError::Protocol { reason };
                let form: StandingForm = serde_json::from_str(&event.data)
                    .map_err(|error| protocol(error.to_string()))?;
                return form.meaning().map_err(protocol);
            }
        }
    }
}

/// A lease at a server.
#[derive(Debug)]
pub struct Seat {
    /// The elections there.
    pub elections: Elections,
    /// The name of the election.
    pub name: String,
}

impl Ballot for Seat {
    type Error = ClientError;

    async fn renew(&self, lease: &Lease) -> Result<Renewed, ClientError> {
        self.elections.renew(&self.name, lease).await
    }

    async fn resign(&self, lease: &Lease) -> Result<(), ClientError> {
        self.elections.resign(&self.name, lease.id, lease.token).await.map(drop)
    }
}

/// A lease as it is answered.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WonForm {
    token: u64,
    lease_id: String,
    expires_at: u64,
    renew_within_millis: u64,
}

impl WonForm {
    fn meaning(self, ttl: Duration) -> Result<Lease, String> {
        Ok(Lease {
            id: self.lease_id.parse().map_err(|_| "leaseId is none")?,
            token: Token::new(self.token).ok_or("token is none")?,
            expires_at: Timestamp::from_unix_millis(self.expires_at),
            ttl,
            right: Duration::from_millis(self.renew_within_millis),
        })
    }
}

/// Where an election stands, as it is answered.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StandingForm {
    holder: Option<String>,
    token: u64,
    remaining_millis: u64,
}

impl StandingForm {
    pub(super) fn meaning(self) -> Result<Standing, String> {
        let token = Token::new(self.token).ok_or("token is none")?;
        let remaining = Duration::from_millis(self.remaining_millis);
        Ok(Standing { holder: self.holder, token, remaining })
    }
}
