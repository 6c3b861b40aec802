"""A reader of a stream over the library requests: it pulls, keeps what it got, and asks for more.

It is told in JSON where the servers are, whose stream it reads, and how. Each answer is one line of
its log, written at once, so that whoever reads the log knows what it had whenever it was killed.
"""

import email.parser
import hashlib
import json
import os
import sys
import time

import requests

TOLD = json.loads(sys.argv[1])
START = f"/api/v1/out/{TOLD['ispb']}/stream/start"
HEADERS = {
    "Authorization": f"Bearer {TOLD['key']}",
    "Accept": TOLD["accept"],
    "Accept-Encoding": TOLD["encoding"],
    "PI-Client-Id": TOLD["name"],
}
LOG = os.open(TOLD["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def log(**line):
    os.write(LOG, (json.dumps(line) + "\n").encode())


def now():
    return int(time.time() * 1000)


def digest(data):
    return hashlib.sha256(data).hexdigest()


def name_of(path):
    return "start" if path == START else digest(path.encode())[:32]


def messages_in(answer):
    """The ids and bytes of an answer's messages."""
    kind = answer.headers["Content-Type"]
    if kind == "application/xml;charset=utf-8":
        return [(answer.headers["PI-ResourceId"], answer.content)]
    whole = email.parser.BytesParser().parsebytes(
        b"Content-Type: " + kind.encode() + b"\r\n\r\n" + answer.content
    )
    assert whole.get_content_type() == "multipart/mixed" and not whole.defects, whole.defects
    return [(part["PI-ResourceId"], part.get_payload(decode=True)) for part in whole.get_payload()]


class Reader:
    def __init__(self):
        self.session = requests.Session()
        self.session.trust_env = False
        self.server = TOLD["first"]
        self.starts = 0
        self.turn_to(START)

    def turn_to(self, path):
        self.path = path
        # Since when the server may have carried the call out: no retry of a token changes that.
        self.asked = now()

    def ask(self):
        """The whole answer; none where there is none to be had."""
        if self.path == START:
            self.asked = now()
        url = TOLD["urls"][self.server % len(TOLD["urls"])] + self.path
        try:
            return self.session.get(url, headers=HEADERS, timeout=(2, 20))
        except requests.RequestException:
            self.server += 1
            time.sleep(0.05)
            return None

    def line(self, answer):
        """What an answer was, for the log."""
        found = [(name, digest(data)) for name, data in messages_in(answer)] if answer.content else []
        told = [answer.headers.get(name) for name in ("Content-Type", "PI-ResourceId", "PI-Pull-Next")]
        return {
            "session": self.starts,
            "token": name_of(self.path),
            "asked": self.asked,
            "answered": now(),
            "next": name_of(answer.headers["PI-Pull-Next"]),
            "whole": digest(json.dumps(told).encode() + answer.content),
            "messages": found,
        }

    def take(self, answer):
        """Keeps what came. Every few tokens it forgets that it did, and asks once more."""
        if self.path == START:
            self.starts += 1
        line = self.line(answer)
        if TOLD["careless"] and line["messages"]:
            # Acknowledged before it is kept: what a reader must never do.
            self.turn_to(answer.headers["PI-Pull-Next"])
            while self.ask() is None:
                pass
            print("acknowledged", flush=True)
            time.sleep(3600)
        log(**line)
        if line["messages"]:
            time.sleep(TOLD["work"] / 1000)
        asks_again = TOLD["again"] and int(line["next"][:8], 16) % TOLD["again"] == 0
        if self.path != START and line["messages"] and asks_again:
            again = self.ask()
            if again is not None and again.status_code == 200:
                log(**self.line(again))
        self.turn_to(answer.headers["PI-Pull-Next"])
        return len(line["messages"])

    def refused(self, answer):
        status = answer.status_code
        if status == 401 and answer.json().get("code") == "token_expired":
            self.turn_to(START)
        elif status in (429, 503, 504):
            time.sleep(0.1)
        else:
            log(refused=status, told=answer.text, token=name_of(self.path))
            sys.exit(f"{status}: {answer.text}")

    def read(self):
        left = TOLD["count"]
        while left is None or left > 0:
            answer = self.ask()
            if answer is None:
                continue
            if answer.status_code in (200, 204):
                taken = self.take(answer)
                left = None if left is None else left - taken
            else:
                self.refused(answer)
        # The last batch is acknowledged by giving the stream back.
        url = TOLD["urls"][self.server % len(TOLD["urls"])] + self.path
        log(ended=self.session.delete(url, headers=HEADERS, timeout=20).status_code)


Reader().read()
