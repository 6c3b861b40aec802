//! Devices as their application sees them: approve or deny by the code that a person typed, list,
//! unlink (`ACApproveDevice` by API).

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wane::services::device_auth::{
    Approval, Decided, DeviceId, DevicePlace, Guesser, LinkToken, LinkedDevice, Person,
};

use crate::http::body::{self, ONE_OPERATION};
use crate::http::caller::Caller;
use crate::http::described::{Making, OfApp, Reading};
use crate::http::path::LastSegment;
use crate::http::problem::{Code, Problem};
use crate::http::query::Parameters;
use crate::wiring::{AppDeviceAuth, Services};

impl Services {
    /// Device login of the calling application.
    fn devices(&self, caller: &Caller) -> AppDeviceAuth {
        self.device_auth.of(caller.app.id)
    }
}

/// `{"userCode":"BCDFG-HJKLM","subject":"alice"}`
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::http) struct ApproveBody {
    /// The code as it was typed: case, dashes and blanks make no difference.
    #[schema(max_length = 128)]
    user_code: String,
    /// Whom the device will stand for.
    #[schema(min_length = 1, max_length = 255)]
    subject: String,
    /// What the device is given instead of a token of ours: printable ASCII.
    #[schema(min_length = 1, max_length = 8192, pattern = "^[ -~]+$", nullable = false)]
    link_token: Option<String>,
}

/// A device that was approved.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct ApprovedBody {
    /// Its name, which opens nothing.
    device_id: String,
}

/// Approves the device that shows this code, on behalf of a person.
#[utoipa::path(post, path = "/api/v2/apps/{owner}/{app}/devices/approve", tag = "device login",
    params(("owner" = String, Path), ("app" = String, Path)), request_body = ApproveBody,
    responses((status = 200, description = "approved", body = ApprovedBody), OfApp, Reading, Making))]
pub(in crate::http) async fn approve(
    State(services): State<Services>,
    caller: Caller,
    request: Request,
) -> Result<Json<ApprovedBody>, Problem> {
    let body: ApproveBody = body::required(request, ONE_OPERATION, &services.clock).await?;
    let link_token = body.link_token.as_deref().map(LinkToken::payload).transpose()?;
    let approval = Approval { subject: body.subject, link_token };
    let by = Guesser::Person(Person::named(&approval.subject));
    let device = done(services.devices(&caller).approve(&body.user_code, &approval, by).await?)?;
    Ok(Json(ApprovedBody { device_id: device.to_string() }))
}

/// `{"userCode":"BCDFG-HJKLM"}`
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::http) struct DenyBody {
    /// The code as it was typed.
    #[schema(max_length = 128)]
    user_code: String,
}

/// Denies the device that shows this code.
#[utoipa::path(post, path = "/api/v2/apps/{owner}/{app}/devices/deny", tag = "device login",
    params(("owner" = String, Path), ("app" = String, Path)), request_body = DenyBody,
    responses((status = 204, description = "denied"), OfApp, Reading, Making))]
pub(in crate::http) async fn deny(
    State(services): State<Services>,
    caller: Caller,
    request: Request,
) -> Result<StatusCode, Problem> {
    let body: DenyBody = body::required(request, ONE_OPERATION, &services.clock).await?;
    done(services.devices(&caller).deny(&body.user_code, Guesser::App).await?)?;
    Ok(StatusCode::NO_CONTENT)
}

/// The device that was decided about, or why nothing was.
fn done(decided: Decided) -> Result<DeviceId, Problem> {
    match decided {
        Decided::Done(device) => Ok(device),
        Decided::NoSuchCode => {
            Err(Problem::new(Code::Absent, "no device shows this code, or it has expired"))
        }
        Decided::AlreadyDecided => {
            Err(Problem::new(Code::Refused, "this code was approved or denied before"))
        }
    }
}

/// A page of linked devices.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct DevicesBody {
    items: Vec<DeviceBody>,
    /// What to give as `after` for the next page; null on the last one.
    #[schema(required)]
    next: Option<String>,
}

/// A linked device.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct DeviceBody {
    device_id: String,
    /// Whom it stands for.
    subject: String,
    client_id: String,
    client_name: String,
    /// What it may, parted by blanks.
    scope: String,
    /// When it was linked, in milliseconds since 1970.
    linked_at: u64,
    /// When its token ends, likewise.
    expires_at: u64,
    /// From where it asked.
    #[schema(required)]
    address: Option<String>,
    /// What it called itself.
    agent: String,
}

impl From<LinkedDevice> for DeviceBody {
    fn from(device: LinkedDevice) -> Self {
        Self {
            device_id: device.id.to_string(),
            subject: device.subject,
            client_id: device.client.to_string(),
            client_name: device.client_name,
            scope: device.scope.join(" "),
            linked_at: device.linked_at.as_unix_millis(),
            expires_at: device.expires_at.as_unix_millis(),
            address: device.asking.address.map(|address| address.to_string()),
            agent: device.asking.agent,
        }
    }
}

/// Lists linked devices, of one person or of all.
#[utoipa::path(get, path = "/api/v2/apps/{owner}/{app}/devices", tag = "device login",
    params(("owner" = String, Path), ("app" = String, Path),
        ("subject" = Option<String>, Query, nullable = false, description = "whose"),
        ("after" = Option<String>, Query, nullable = false, description = "`next` of the page before"),
        ("limit" = Option<u16>, Query, nullable = false, minimum = 1, maximum = 1000)),
    responses((status = 200, description = "a page of devices", body = DevicesBody), OfApp))]
pub(in crate::http) async fn list(
    State(services): State<Services>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<DevicesBody>, Problem> {
    let query = Parameters::of(&uri, &["subject", "after", "limit"])?;
    let after = query.get("after").map(DevicePlace::parse).transpose()?;
    let limit = query.page_limit()?;
    let page = services.devices(&caller).list(query.get("subject"), after.as_ref(), limit).await?;
    Ok(Json(DevicesBody {
        items: page.devices.into_iter().map(DeviceBody::from).collect(),
        next: page.next.map(|place| place.as_str().to_owned()),
    }))
}

/// Unlinks a device: its token opens nothing from now on.
#[utoipa::path(delete, path = "/api/v2/apps/{owner}/{app}/devices/{deviceId}", tag = "device login",
    params(("owner" = String, Path), ("app" = String, Path), ("deviceId" = String, Path)),
    responses((status = 204, description = "unlinked"), OfApp))]
pub(in crate::http) async fn unlink(
    State(services): State<Services>,
    caller: Caller,
    LastSegment(id): LastSegment,
) -> Result<StatusCode, Problem> {
    let device = String::from_utf8_lossy(&id).parse()?;
    match services.devices(&caller).revoke(device).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::absent()),
    }
}
