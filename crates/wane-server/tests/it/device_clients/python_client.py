"""A device that logs in through a Python library, told what to do line by line.

    python_client.py LIBRARY '{"issuer": .., "clientId": .., "secret": .., "method": .., "scope": ..}'

Each line on the standard input is one of start, poll, wait, introspect and revoke; each is answered with
one line of JSON. What a library raises is told by the name of its class.
"""

import json
import os
import sys

GRANT = "urn:ietf:params:oauth:grant-type:device_code"


class RequestsOauth2Client:
    """requests-oauth2client, told where everything is by the server's metadata."""

    def __init__(self, asked):
        import requests
        import requests_oauth2client as library

        self.library = library
        answer = requests.get(asked["discovery"])
        answer.raise_for_status()
        metadata = answer.json()
        secret = asked.get("secret")
        methods = {
            "none": lambda: library.PublicApp(asked["clientId"]),
            "basic": lambda: library.ClientSecretBasic(asked["clientId"], secret),
            "post": lambda: library.ClientSecretPost(asked["clientId"], secret),
        }
        # Of the metadata it passes over the one endpoint that it is needed for here.
        self.client = library.OAuth2Client.from_discovery_document(
            metadata,
            issuer=asked["issuer"],
            device_authorization_endpoint=metadata["device_authorization_endpoint"],
            auth=methods[asked["method"]](),
            testing=True,
        )
        self.scope = asked.get("scope")

    def start(self):
        asked = {"scope": self.scope} if self.scope else {}
        self.started = self.client.authorize_device(**asked)
        return {
            "user_code": self.started.user_code,
            "device_code": self.started.device_code,
            "verification_uri": self.started.verification_uri,
            "verification_uri_complete": self.started.verification_uri_complete,
            "interval": self.started.interval,
            "is_expired": self.started.is_expired(),
        }

    def poll(self):
        return self.told(self.client.device_code(self.started))

    def wait(self):
        job = self.library.DeviceAuthorizationPollingJob(self.client, self.started)
        intervals = []
        while True:
            token = job()
            intervals.append(job.interval)
            if token:
                return self.told(token) | {"intervals": intervals}

    def told(self, token):
        self.token = token
        return {
            "token": token.access_token,
            "scope": token.scope,
            "type": token.token_type,
            "expires_in": token.expires_in,
        }

    def introspect(self):
        return self.client.introspect_token(self.token)

    def revoke(self):
        return {"revoked": self.client.revoke_access_token(self.token)}


class Authlib:
    """authlib, a session over requests."""

    def __init__(self, asked):
        from authlib.integrations.requests_client import OAuth2Session

        methods = {"none": "none", "basic": "client_secret_basic", "post": "client_secret_post"}
        method = methods[asked["method"]]
        self.issuer, self.client_id = asked["issuer"], asked["clientId"]
        self.scope = asked.get("scope")
        self.session = OAuth2Session(
            self.client_id,
            asked.get("secret"),
            token_endpoint_auth_method=method,
            revocation_endpoint_auth_method=method,
            scope=self.scope,
        )
        self.method = method

    def start(self):
        # Who it is, the library adds.
        form = {"scope": self.scope} if self.scope else {}
        auth = self.session.client_auth(self.method)
        answer = self.session.post(
            f"{self.issuer}/device_authorization", data=form, auth=auth, withhold_token=True
        )
        answer.raise_for_status()
        self.started = answer.json()
        return self.started

    def poll(self):
        token = self.session.fetch_token(
            f"{self.issuer}/token", grant_type=GRANT, device_code=self.started["device_code"]
        )
        self.token = token
        return {
            "token": token["access_token"],
            "scope": token.get("scope"),
            "type": token["token_type"],
            "expires_in": token["expires_in"],
        }

    def introspect(self):
        answer = self.session.introspect_token(
            f"{self.issuer}/introspect", token=self.token["access_token"]
        )
        return answer.json()

    def revoke(self):
        answer = self.session.revoke_token(
            f"{self.issuer}/revoke", token=self.token["access_token"]
        )
        return {"revoked": answer.status_code == 200}


class RequestsOauthlib:
    """requests-oauthlib over oauthlib, which raises where the scope is not the one asked for."""

    def __init__(self, asked):
        # Over HTTP, on this machine.
        os.environ["OAUTHLIB_INSECURE_TRANSPORT"] = "1"
        from oauthlib.oauth2 import DeviceClient
        from requests_oauthlib import OAuth2Session

        self.issuer, self.client_id = asked["issuer"], asked["clientId"]
        scope = asked["scope"]
        # What it asks codes for, where that is not what it says in its poll.
        self.start_scope = asked.get("startScope", scope)
        self.session = OAuth2Session(client=DeviceClient(self.client_id, scope=scope.split(" ")))

    def start(self):
        import requests

        form = {"client_id": self.client_id, "scope": self.start_scope or ""}
        answer = requests.post(f"{self.issuer}/device_authorization", data=form)
        answer.raise_for_status()
        self.started = answer.json()
        return self.started

    def poll(self):
        token = self.session.fetch_token(
            f"{self.issuer}/token",
            device_code=self.started["device_code"],
            include_client_id=True,
        )
        return {
            "token": token["access_token"],
            "scope": " ".join(token.get("scope", [])),
            "type": token["token_type"],
            "expires_in": token["expires_in"],
        }


LIBRARIES = {
    "requests-oauth2client": RequestsOauth2Client,
    "authlib": Authlib,
    "requests-oauthlib": RequestsOauthlib,
}


def main():
    device = LIBRARIES[sys.argv[1]](json.loads(sys.argv[2]))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        try:
            told = getattr(device, line.strip())()
        except Exception as error:
            told = {"raised": type(error).__name__, "said": str(error)}
            told["error"] = getattr(error, "error", None)
        print(json.dumps(told), flush=True)


main()
