"""An MCP server that wants somebody to log in, and the authorization server for it. Standard library only.

Prints its port. Notes each grant and each token that it sees in the file of its argument. The first token is about to expire.
"""
import base64
import hashlib
import json
import sys
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

codes, tokens, clients = {}, set(), {}


def note(text):
    with open(sys.argv[1], "a") as file:
        file.write(text + "\n")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def say(self, status, body=None, **headers):
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def base(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def do_GET(self):
        url = urllib.parse.urlparse(self.path)
        query = {key: value[0] for key, value in urllib.parse.parse_qs(url.query).items()}
        if url.path.startswith("/.well-known/oauth-protected-resource"):
            self.say(200, {"resource": self.base() + "/mcp", "authorization_servers": [self.base()]})
        elif url.path.startswith("/.well-known/oauth-authorization-server"):
            self.say(200, {"issuer": self.base(), "authorization_endpoint": self.base() + "/authorize",
                           "token_endpoint": self.base() + "/token", "registration_endpoint": self.base() + "/register",
                           "response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"],
                           "grant_types_supported": ["authorization_code", "refresh_token"],
                           "token_endpoint_auth_methods_supported": ["none"]})
        elif url.path == "/authorize":
            if query["client_id"] not in clients or query["redirect_uri"] not in clients[query["client_id"]]:
                return self.say(400, {"error": "invalid_client"})
            code = f"code-{len(codes)}"
            codes[code] = query
            answer = urllib.parse.urlencode({"code": code, "state": query["state"]})
            self.say(302, location=query["redirect_uri"] + "?" + answer)
        else:
            self.say(405)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path == "/register":
            asked = json.loads(body)
            client = f"client-{len(clients)}"
            clients[client] = asked["redirect_uris"]
            self.say(201, {**asked, "client_id": client})
        elif self.path == "/token":
            self.token({key: value[0] for key, value in urllib.parse.parse_qs(body.decode()).items()})
        else:
            self.mcp(json.loads(body))

    def token(self, form):
        note("grant " + form["grant_type"])
        if form["grant_type"] == "authorization_code":
            query = codes.pop(form["code"], None)
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            if query is None or challenge != query["code_challenge"]:
                return self.say(400, {"error": "invalid_grant"})
            lifetime = 1
        elif form["refresh_token"] == "refresh-secret":
            lifetime = 3600
        else:
            return self.say(400, {"error": "invalid_grant"})
        access = f"access-{len(tokens)}"
        tokens.add(access)
        self.say(200, {"access_token": access, "token_type": "Bearer", "expires_in": lifetime,
                       "refresh_token": "refresh-secret"})

    def mcp(self, request):
        token = self.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in tokens:
            where = f'Bearer resource_metadata="{self.base()}/.well-known/oauth-protected-resource"'
            return self.say(401, {"error": "unauthorized"}, www_authenticate=where)
        note("token " + token)
        method, params = request.get("method"), request.get("params", {})
        results = {
            "initialize": lambda: {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                                   "serverInfo": {"name": "web", "version": "1"}},
            "tools/list": lambda: {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
            "tools/call": lambda: {"content": [{"type": "text", "text": params["arguments"]["text"]}]},
        }
        if method in results:
            self.say(200, {"jsonrpc": "2.0", "id": request["id"], "result": results[method]()})
        else:
            self.say(202)


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
