"""Whether servers answer, and which addresses are free. Only the standard library.

  probe.py free-ports COUNT              ports of 127.0.0.1 that nobody has
  probe.py free-network COUNT PORT..     127.x.y, where the addresses 1 to COUNT have the ports free
  probe.py KIND SECONDS PID@HOST:PORT..  returns when all nodes of the server answer; fails when one
                                         of the processes has ended, or when the time is over

An open port is no answer: Redis must say its process id, DynamoDB must list its tables, and every
node of Cassandra must know all others, agree with them on the schema, and read from all of them.
"""

import http.client
import json
import random
import socket
import struct
import sys
import time

ASK_SECONDS = 10


class NotYet(Exception):
    """The server answered, but is not ready."""


def is_free(host, port):
    with socket.socket() as listener:
        try:
            listener.bind((host, port))
        except OSError:
            return False
    return True


def free_ports(count):
    # Below the ports that the kernel gives to outgoing connections, which could take it meanwhile.
    ports = [port for port in random.sample(range(10240, 32768), 200) if is_free("127.0.0.1", port)]
    if len(ports) < count:
        sys.exit("no free ports")
    return " ".join(str(port) for port in ports[:count])


def free_network(count, *ports):
    for _ in range(200):
        network = f"127.{random.randint(1, 254)}.{random.randint(1, 254)}"
        nodes = [f"{network}.{node}" for node in range(1, int(count) + 1)]
        if all(is_free(node, int(port)) for node in nodes for port in ports):
            return network
    sys.exit("no free network")


def redis(nodes):
    for pid, host, port in nodes:
        with socket.create_connection((host, port), ASK_SECONDS) as link, link.makefile("rb") as lines:
            link.sendall(b"PING\r\n")
            pong = lines.readline()
            if pong != b"+PONG\r\n":
                raise NotYet(f"PING was answered by {pong!r}")
            link.sendall(b"INFO server\r\n")
            info = lines.read(int(lines.readline()[1:]))
            if f"process_id:{pid}\r\n".encode() not in info:
                raise NotYet(f"another process than {pid} answers on port {port}")


def dynamodb(nodes):
    for _, host, port in nodes:
        link = http.client.HTTPConnection(host, port, timeout=ASK_SECONDS)
        credential = "Credential=wanelocal/20200101/us-east-1/dynamodb/aws4_request"
        headers = {
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Target": "DynamoDB_20120810.ListTables",
            "Authorization": f"AWS4-HMAC-SHA256 {credential}, SignedHeaders=host, Signature=0",
        }
        link.request("POST", "/", "{}", headers)
        answer = link.getresponse()
        body = answer.read()
        if answer.status != 200 or "TableNames" not in json.loads(body):
            raise NotYet(f"ListTables was answered by {answer.status} {body!r}")


class Cql:
    """A connection that speaks enough of the native protocol, version 4, for plain SELECTs."""

    OPTIONS, STARTUP, QUERY = 5, 1, 7
    READY, SUPPORTED, RESULT = 2, 6, 8
    ONE, ALL = 1, 5

    def __init__(self, host, port):
        self.link = socket.create_connection((host, port), ASK_SECONDS)
        self.ask(self.OPTIONS, b"", self.SUPPORTED)
        version = [self.string("CQL_VERSION"), self.string("3.0.0")]
        self.ask(self.STARTUP, struct.pack(">H", 1) + b"".join(version), self.READY)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.link.close()

    @staticmethod
    def string(text):
        return struct.pack(">H", len(text)) + text.encode()

    def exactly(self, size):
        data = b""
        while len(data) < size:
            part = self.link.recv(size - len(data))
            if not part:
                raise NotYet("the connection was closed")
            data += part
        return data

    def ask(self, opcode, body, expected):
        self.link.sendall(struct.pack(">BBhBI", 4, 0, 0, opcode, len(body)) + body)
        _, _, _, answer, size = struct.unpack(">BBhBI", self.exactly(9))
        body = self.exactly(size)
        if answer != expected:
            raise NotYet(f"answered by opcode {answer}: {body[6:]!r}")
        return body

    def select(self, statement, consistency):
        """The rows, each a list of bytes or None."""
        query = struct.pack(">I", len(statement)) + statement.encode()
        body = self.ask(self.QUERY, query + struct.pack(">HB", consistency, 0), self.RESULT)
        return Rows(body).rows()


class Rows:
    """The body of a result: a kind, the columns with types that have no parameters, the rows."""

    GLOBAL_TABLE = 1

    def __init__(self, body):
        self.body, self.at = body, 0

    def number(self, form):
        (number,) = struct.unpack_from(form, self.body, self.at)
        self.at += struct.calcsize(form)
        return number

    def skip_string(self):
        # Read first: the number moves the place that its value is added to.
        size = self.number(">H")
        self.at += size

    def cell(self):
        size = self.number(">i")
        if size < 0:
            return None
        self.at += size
        return self.body[self.at - size : self.at]

    def rows(self):
        self.number(">i")
        flags, columns = self.number(">i"), self.number(">i")
        tables = 2 if flags & self.GLOBAL_TABLE else 0
        for _ in range(tables):
            self.skip_string()
        for _ in range(columns):
            for _ in range(1 if tables else 3):
                self.skip_string()
            self.number(">H")
        count = self.number(">i")
        return [[self.cell() for _ in range(columns)] for _ in range(count)]


def cassandra(nodes):
    hosts = {socket.inet_aton(host) for _, host, _ in nodes}
    # The keyspace has three replicas. Only with three nodes can all of them be asked.
    consistency = Cql.ALL if len(nodes) == 3 else Cql.ONE
    schemas = set()
    for _, host, port in nodes:
        with Cql(host, port) as cql:
            local = cql.select("SELECT schema_version FROM system.local", Cql.ONE)
            peers = cql.select("SELECT peer, schema_version FROM system.peers_v2", Cql.ONE)
            others = hosts - {socket.inet_aton(host)}
            if {peer for peer, _ in peers} != others:
                raise NotYet(f"{host} knows {len(peers)} of {len(others)} other nodes")
            schemas |= {version for version, in local} | {version for _, version in peers}
            cql.select(
                "SELECT parent_id FROM system_distributed.parent_repair_history"
                " WHERE parent_id = 00000000-0000-1000-8000-000000000000",
                consistency,
            )
    if len(schemas) != 1 or None in schemas:
        raise NotYet(f"there are {len(schemas)} versions of the schema")


def has_ended(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def await_answer(check, seconds, *given):
    nodes = []
    for node in given:
        pid, _, address = node.partition("@")
        host, _, port = address.rpartition(":")
        nodes.append((int(pid), host, int(port)))
    deadline = time.monotonic() + int(seconds)
    while True:
        for number, (pid, _, _) in enumerate(nodes, 1):
            if has_ended(pid):
                sys.exit(f"node {number}, process {pid}, has ended")
        try:
            return check(nodes)
        except (NotYet, OSError, http.client.HTTPException, ValueError, struct.error) as reason:
            if time.monotonic() > deadline:
                sys.exit(f"not ready after {seconds} s: {reason}")
        time.sleep(0.1)


def main(verb, *given):
    checks = {"redis": redis, "dynamodb": dynamodb, "cassandra": cassandra}
    if verb == "free-ports":
        print(free_ports(int(given[0])))
    elif verb == "free-network":
        print(free_network(*given))
    else:
        await_answer(checks[verb], *given)


main(*sys.argv[1:])
