"""A small server of the HuggingFace hub's protocol, for tests on the loopback interface.

It has what huggingface_hub asks for when it makes a repository, uploads a commit with large files by LFS and downloads:
with tokens that are refused, repositories that are private, branches, and connections that break.
"""

import base64
import contextlib
import hashlib
import http.server
import json
import re
import threading
import urllib.parse

import yaml

# What a token may do.
TOKENS = {"hf_writer": "write", "hf_reader": "read"}
_REPOSITORY = r"(?P<name>[\w.-]+/[\w.-]+)"
_DATASET = re.compile(r"(?:[\w-]+/)?[\w.-]+")


class Repository:
    """What a repository holds: of each branch its commits, of each commit its files.

    Attributes:
        private: bool.
        branches: dict from name to the hash of its last commit.
        commits: dict from hash to a dict from path to content.
        messages: list of str, of the uploads.
    """

    def __init__(self, private=False):
        self.private, self.messages = private, []
        self.branches, self.commits = {}, {}
        self.commit("main", {})

    def commit(self, branch, files):
        files = {**self.commits.get(self.branches.get(branch), {}), **files}
        content = repr([branch, len(self.commits), sorted(files.items())]).encode()
        self.branches[branch] = hashlib.sha1(content).hexdigest()
        self.commits[self.branches[branch]] = files
        return self.branches[branch]

    def find(self, revision):
        """The hash of a branch or a commit, or None."""
        return self.branches.get(revision, revision if revision in self.commits else None)


class HubServer(http.server.ThreadingHTTPServer):
    """The server, and what has happened to it.

    Attributes:
        repositories: dict from `owner/name` to `Repository`.
        stored: dict from SHA-256 to the content of large files that were uploaded, in a commit or not.
        requests: list of str, `METHOD /path` of each request.
        breaks: list of str, patterns; a connection whose `METHOD /path` has one is cut in the middle, and the pattern
            is taken off the list.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.endpoint = f"http://127.0.0.1:{self.server_port}"
        self.repositories, self.stored, self.requests, self.breaks = {}, {}, [], []

    def handle_error(self, request, client_address):
        """A client that went away is what some tests are about."""

    def put(self, name, folder, *, private=False):
        """A repository with the files of a folder."""
        repository = self.repositories.setdefault(name, Repository(private))
        paths = [path for path in folder.rglob("*") if path.is_file()]
        repository.commit("main", {str(path.relative_to(folder)): path.read_bytes() for path in paths})
        return repository

    def files(self, name, revision="main"):
        repository = self.repositories[name]
        return repository.commits[repository.find(revision)]


@contextlib.contextmanager
def serving():
    """A `HubServer` that answers while the block runs."""
    server = HubServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def is_large(path):
    return path.endswith((".safetensors", ".bin", ".h5"))


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def handle_all(self):
        self.path = urllib.parse.urlsplit(self.path).path
        line = f"{self.command} {self.path}"
        self.server.requests.append(line)
        length = int(self.headers.get("Content-Length") or 0)
        broken = next((pattern for pattern in self.server.breaks if re.search(pattern, line)), None)
        if broken is not None:
            self.server.breaks.remove(broken)
        self.cut = broken is not None
        if self.cut and self.command in ("PUT", "POST"):
            self.rfile.read(length // 2)
            self.close_connection = True
            self.connection.close()
            return
        self.body = self.rfile.read(length)
        for pattern, method in _ROUTES:
            found = re.fullmatch(pattern, line)
            if found:
                return getattr(self, method)(**{k: urllib.parse.unquote(v) for k, v in found.groupdict().items()})
        self.answer(404, {"error": "no such page"})

    do_GET = do_HEAD = do_POST = do_PUT = handle_all

    def answer(self, status, content=b"", **headers):
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.cut:
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            self.close_connection = True
            return
        self.wfile.write(content)

    def right(self):
        """What the request's token may do: None without one, "refused" with a wrong one."""
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        return TOKENS.get(token, "refused") if token else None

    def may_write(self):
        if self.right() != "write":
            message = "Invalid credentials in Authorization header" if self.right() != "read" else "no right to write"
            self.answer(401 if self.right() != "read" else 403, {"error": message}, X_Error_Message=message)
        return self.right() == "write"

    def readable(self, name):
        """The repository, if the request may read it; otherwise an answer is given."""
        repository = self.server.repositories.get(name)
        if self.right() == "refused":
            message = "Invalid credentials in Authorization header"
            self.answer(401, {"error": message}, X_Error_Message=message)
        elif repository is None or (repository.private and self.right() is None):
            self.answer(
                401 if self.right() is None else 404,
                {"error": "Repository not found"},
                X_Error_Code="RepoNotFound",
                X_Error_Message="Repository not found",
            )
        else:
            return repository
        return None

    def create(self):
        if not self.may_write():
            return
        asked = json.loads(self.body)
        name = f"{asked['organization']}/{asked['name']}"
        url = {"url": f"{self.server.endpoint}/{name}"}
        if name in self.server.repositories:
            return self.answer(409, {"error": "You already created this model repo", **url})
        self.server.repositories[name] = Repository(bool(asked.get("private")))
        self.answer(200, url)

    def validate(self):
        content = json.loads(self.body)["content"]
        data, errors = yaml.safe_load(content.split("---")[1]), []
        for result in (result for index in data.get("model-index", ()) for result in index["results"]):
            if not _DATASET.fullmatch(result["dataset"]["type"]):
                errors.append({"message": f"dataset.type {result['dataset']['type']!r} fails to match the pattern"})
        if not _DATASET.fullmatch(data.get("base_model", "a/b")):
            errors.append({"message": f"base_model {data['base_model']!r} is not valid"})
        self.answer(400 if errors else 200, {"errors": errors, "warnings": []})

    def branch(self, name, revision):
        repository = self.server.repositories.get(name)
        if not self.may_write():
            return
        if revision in repository.branches:
            return self.answer(409, {"error": "Reference already exists"})
        repository.branches[revision] = repository.branches["main"]
        self.answer(200, {})

    def preupload(self, name, revision):
        repository = self.server.repositories.get(name)
        if not self.may_write():
            return
        there, files = repository.commits[repository.find(revision)], []
        for file in json.loads(self.body)["files"]:
            path, content = file["path"], there.get(file["path"])
            large = is_large(path)
            mode = {"path": path, "uploadMode": "lfs" if large else "regular", "shouldIgnore": False}
            if content is not None:
                blob = content if large else b"blob %d\0" % len(content) + content
                mode["oid"] = (hashlib.sha256 if large else hashlib.sha1)(blob).hexdigest()
            files.append(mode)
        self.answer(200, {"files": files})

    def batch(self, name):
        if not self.may_write():
            return
        objects = []
        for one in json.loads(self.body)["objects"]:
            upload = {"href": f"{self.server.endpoint}/lfs/{one['oid']}"}
            verify = {"href": f"{self.server.endpoint}/{name}.git/info/lfs/verify"}
            there = {} if one["oid"] in self.server.stored else {"actions": {"upload": upload, "verify": verify}}
            objects.append({**one, **there})
        self.answer(200, {"objects": objects, "transfer": "basic"})

    def store(self, oid):
        if hashlib.sha256(self.body).hexdigest() != oid:
            return self.answer(400, {"error": "the content has another SHA-256"})
        self.server.stored[oid] = self.body
        self.answer(200)

    def verify(self, name):
        self.answer(200 if json.loads(self.body)["oid"] in self.server.stored else 404)

    def commit(self, name, revision):
        if not self.may_write():
            return
        repository, files = self.server.repositories[name], {}
        for line in map(json.loads, self.body.splitlines()):
            value = line["value"]
            if line["key"] == "header":
                repository.messages.append(value["summary"])
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.stored[value["oid"]]
        sha = repository.commit(revision, files)
        self.answer(200, {"commitUrl": f"{self.server.endpoint}/{name}/commit/{sha}", "commitOid": sha})

    def info(self, name, revision="main"):
        repository = self.readable(name)
        if repository is None:
            return
        sha = repository.find(revision)
        if sha is None:
            return self.answer(404, {"error": "Invalid rev id"}, X_Error_Code="RevisionNotFound")
        siblings = [{"rfilename": path} for path in repository.commits[sha]]
        self.answer(200, {"id": name, "sha": sha, "private": repository.private, "siblings": siblings})

    def resolve(self, name, revision, path):
        repository = self.readable(name)
        if repository is None:
            return
        sha = repository.find(revision)
        if sha is None:
            return self.answer(404, X_Error_Code="RevisionNotFound")
        content = repository.commits[sha].get(path)
        if content is None:
            return self.answer(404, X_Error_Code="EntryNotFound", X_Repo_Commit=sha)
        etag = hashlib.sha256(content).hexdigest()
        if is_large(path):
            self.server.stored[etag] = content
            return self.answer(
                302,
                Location=f"{self.server.endpoint}/cdn/{etag}",
                X_Linked_Etag=f'"{etag}"',
                X_Linked_Size=len(content),
                X_Repo_Commit=sha,
            )
        size = {"Content_Length": len(content)} if self.command == "HEAD" else {}
        self.answer(200, content, ETag=f'"{etag}"', X_Repo_Commit=sha, **size)

    def cdn(self, oid):
        content, part = self.server.stored[oid], re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if not part:
            return self.answer(200, content)
        start = int(part[1])
        self.answer(206, content[start:], Content_Range=f"bytes {start}-{len(content) - 1}/{len(content)}")


_ROUTES = [
    ("POST /api/repos/create", "create"),
    ("POST /api/validate-yaml", "validate"),
    (f"POST /api/models/{_REPOSITORY}/branch/(?P<revision>[^/]+)", "branch"),
    (f"POST /api/models/{_REPOSITORY}/preupload/(?P<revision>[^/]+)", "preupload"),
    (f"POST /api/models/{_REPOSITORY}/commit/(?P<revision>[^/]+)", "commit"),
    (rf"POST /{_REPOSITORY}\.git/info/lfs/objects/batch", "batch"),
    (rf"POST /{_REPOSITORY}\.git/info/lfs/verify", "verify"),
    ("PUT /lfs/(?P<oid>[0-9a-f]+)", "store"),
    (f"GET /api/models/{_REPOSITORY}", "info"),
    (f"GET /api/models/{_REPOSITORY}/revision/(?P<revision>[^/]+)", "info"),
    (f"(GET|HEAD) /{_REPOSITORY}/resolve/(?P<revision>[^/]+)/(?P<path>.+)", "resolve"),
    ("GET /cdn/(?P<oid>[0-9a-f]+)", "cdn"),
]
