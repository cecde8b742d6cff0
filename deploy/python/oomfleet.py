#!/usr/bin/env python3
"""A client for OOMFleet's coordinators in one file. Python 3.9 or later, nothing else.

    from oomfleet import Fleet, Refused
    fleet = Fleet("http://host-a:7400,http://host-b:7400")
    print(fleet.quota(seq_len=384, driver="580.159.04")["quota_bytes"])

or, as a command: python3 oomfleet.py quota --seq-len 384 --driver 580.159.04

Answers are the documents of /openapi.json as Python values; amounts are bytes. Every
way to fail is a Refused, with a code for programs and a sentence for people.
"""
from __future__ import annotations

import argparse
import hashlib
import ipaddress
import json
import os
import secrets
import socket
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union

Document = Dict[str, Any]
Pairs = Dict[str, str]
_SIGN = 5.0  # seconds that a server has to say that it is there
_INDEX, _AT_LEAST = "Oomfleet-Applied-Index", "Oomfleet-Min-Index"


class Refused(Exception):
    """The answer is no, or there is none. str() is the sentence.

    code is a coordinator's (docs/api.md lists them), or "unreached" where none
    answered, "bad_access" for a token or CA file that cannot be used, and
    "bad_trace" for a download that is not what its digest says. status is the
    HTTP status, 0 without one; details are a matrix file's problems. lost is
    whether what was asked may have been done all the same."""

    def __init__(self, code: str, sentence: str, status: int = 0, details: Optional[List[Document]] = None, lost: bool = False):
        super().__init__(sentence)
        self.code, self.sentence, self.status, self.details = code, sentence, status, details or []
        self.lost = lost or code == "uncertain" or status in (502, 504)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None  # a token is for the servers that were named


class Fleet:
    """The coordinators of one fleet: each is tried in turn, and the one that answered is kept.

    servers are base URLs, separated by commas ($OOMFLEET_SERVER). The token is
    token, or in token_file ($OOMFLEET_TOKEN, $OOMFLEET_TOKEN_FILE); it is sent over
    https or to this machine alone, unless insecure. ca_file ($OOMFLEET_CA) names
    whom to trust. timeout is how many seconds a server may be silent;
    one of several that gives no sign within five is passed over. An instance
    belongs to one thread at a time. What it wrote it reads, whoever answers."""

    def __init__(self, servers: Optional[str] = None, token: Optional[str] = None, token_file: Optional[str] = None,
                 ca_file: Optional[str] = None, timeout: float = 90.0, insecure: bool = False):
        text = servers or os.environ.get("OOMFLEET_SERVER") or "http://127.0.0.1:7400"
        self._bases = [s.strip().rstrip("/") for s in text.split(",")]
        self._timeout, self._first, self._wrote = timeout, 0, 0
        self._token = token or ("" if token_file else os.environ.get("OOMFLEET_TOKEN", ""))
        token_file = token_file or os.environ.get("OOMFLEET_TOKEN_FILE")
        ca_file = ca_file or os.environ.get("OOMFLEET_CA")
        try:
            if not self._token and token_file:
                with open(token_file, encoding="ascii") as f:
                    self._token = f.read().strip()
            trust = ssl.create_default_context(cafile=ca_file)
        except (OSError, UnicodeError, ssl.SSLError) as e:
            raise Refused("bad_access", f"the token or CA file cannot be used: {e}") from None
        if any(not 32 < ord(c) < 127 for c in self._token):
            raise Refused("bad_access", "the token is not one word of printable letters; is the file a token's?")
        for base in self._bases:
            url = urllib.parse.urlsplit(base)
            if url.scheme not in ("http", "https") or not url.hostname:
                raise Refused("bad_request", f"coordinator address {base!r} is not a URL like http://127.0.0.1:7400")
            if self._token and url.scheme == "http" and not insecure and not _on_this_machine(url.hostname):
                raise Refused("bad_access", f"{base} is plain http:// and leaves this machine, so the token would be readable on the way: "
                              "use https://, or insecure=True if the network is yours alone")
        tls = urllib.request.HTTPSHandler(context=trust)
        self._far = urllib.request.build_opener(_NoRedirect, tls)
        self._near = urllib.request.build_opener(_NoRedirect, tls, urllib.request.ProxyHandler({}))

    # Questions about memory.

    def quota(self, seq_len: int, batch: int = 1, extrapolate: bool = False, **subject: Any) -> Document:
        """A quota with its evidence. subject: gpu, driver, workload, chunk_size, quota_kind, origin, risk,
        env={...}, param={...}; left out, the server's defaults: esmfold, allocator, measured."""
        return self._get("/v1/quota", seq_len=seq_len, batch=batch, extrapolate=extrapolate, **subject)

    def max_seq_len(self, quota_bytes: int, batch: int = 1, **subject: Any) -> Document:
        """The largest length that fits a quota."""
        return self._get("/v1/quota/max-seq-len", quota_bytes=quota_bytes, batch=batch, **subject)

    def max_batch(self, quota_bytes: int, seq_len: int, **subject: Any) -> Document:
        """The largest batch that fits a quota."""
        return self._get("/v1/quota/max-batch", quota_bytes=quota_bytes, seq_len=seq_len, **subject)

    def replicas(self, seq_len: int, batch: int = 1, card_memory_bytes: int = 0, **subject: Any) -> Document:
        """How many runs a card holds at once; 0 is the card of the evidence."""
        return self._get("/v1/quota/replicas", seq_len=seq_len, batch=batch, card_memory_bytes=card_memory_bytes, **subject)

    def compare_quotas(self, seq_len: int, other: Dict[str, Any], batch: int = 1, **subject: Any) -> Document:
        """Two recommendations side by side; other holds the fields in which the second question differs."""
        fields: List[str] = []
        for name, value in other.items():
            if isinstance(value, dict):  # env={} asks for none
                fields += [f"{name}={k}={v}" for k, v in value.items()] or [f"{name}="]
            else:
                fields.append(f"{name}={value}")
        return self._get("/v1/quota/compare", seq_len=seq_len, batch=batch, **subject, **{"with": fields})

    def compare(self, after: str, before: Optional[str] = None, **how: Any) -> Document:
        """Two sweeps, cell by cell and term by term. how: before_driver, after_driver, margin_bytes, confidence, card_bytes."""
        return self._get("/v1/compare", after=after, before=before, **how)

    # What the registry holds. Every read of it takes consistent=True, or max_age="5s".

    def coefficients(self, **select: Any) -> Document:
        """Fitted coefficients. select: gpu, driver, workload, origin, quota_kind."""
        return self._get("/v1/coefficients", **select)

    def coefficient_history(self, **select: Any) -> Document:
        """Coefficients by revision; select as above, and revision."""
        return self._get("/v1/coefficients/history", **select)

    def import_coefficients(self, coefficients: Sequence[Document]) -> Document:
        """Commit coefficients of origin imported."""
        return self._post("/v1/coefficients", {"coefficients": list(coefficients)})

    def boundaries(self, **select: Any) -> Document:
        """Boundaries of settled cells. select: gpu, driver, workload, origin, quota_kind, seq_len, batch."""
        return self._get("/v1/boundaries", **select)

    def boundary_history(self, cell: str, **select: Any) -> Document:
        """What one cell was settled as. select: origin, revision."""
        return self._get(f"/v1/boundaries/{_quote(cell)}/history", **select)

    def programs(self, **select: Any) -> Document:
        """Allocation programs by family. select: origin, digest."""
        return self._get("/v1/programs", **select)

    def status(self, **fresh: Any) -> Document:
        """The coordinator that answers, and its cluster."""
        return self._get("/v1/status", **fresh)

    def agents(self) -> Document:
        """The agents that are announced now."""
        return self._get("/v1/agents")

    # Sweeps.

    def submit(self, source: str, set: Sequence[str] = (), origin: str = "measured", again: bool = False, request: str = "") -> Document:
        """Submit a matrix file's text; set overrides keys of it, like axes.seq_len=128,256. It counts once: where an answer
        is lost the same is asked again for a while, under the key request, which is made up here unless it is given."""
        return self._surely("/v1/sweeps", {"source": source, "set": list(set), "origin": origin, "again": again}, request)

    def sweeps(self, **fresh: Any) -> Document:
        """All sweeps."""
        return self._get("/v1/sweeps", **fresh)

    def sweep(self, id: str, **fresh: Any) -> Document:
        """Where one sweep stands, cell by cell."""
        return self._get(f"/v1/sweeps/{_quote(id)}", **fresh)

    def cancel(self, id: str) -> Document:
        """Cancel a sweep."""
        return self._post(f"/v1/sweeps/{_quote(id)}/cancel", None)

    def repeat(self, id: str, cells: Sequence[str], repeats: int = 1, request: str = "") -> Document:
        """Record settled cells of a sweep again. It counts once, as submit does."""
        return self._surely(f"/v1/sweeps/{_quote(id)}/repeat", {"cells": list(cells), "repeats": repeats}, request)

    # Traces.

    def traces(self, sweep: Optional[str] = None, **fresh: Any) -> Document:
        """Recorded traces, of one sweep or of all."""
        return self._get("/v1/traces", sweep=sweep, **fresh)

    def trace(self, digest: str) -> bytes:
        """One trace file (Parquet), checked against its digest."""
        content: bytes = self._ask("GET", f"/v1/traces/{_quote(digest)}", accept="application/vnd.apache.parquet")
        if hashlib.sha256(content).hexdigest() != digest:
            raise Refused("bad_trace", "what came is not the trace that was asked for: it is damaged, in the store or on the way")
        return content

    def trace_url(self, digest: str) -> Document:
        """An address of the trace store from which whoever has it can fetch this one file until "expires": a secret as long. Check what
        comes against the digest. Refused where clients cannot reach the store; trace() always works."""
        return self._get(f"/v1/traces/{_quote(digest)}/url")

    # Changes.

    def watch(self, kinds: Sequence[str] = (), since: Optional[int] = None, retry: float = 1.0) -> Iterator[Document]:
        """Events as they come, without end; docs/registry.md describes them. since is the log position after which
        changes are wanted: None begins now, 0 at all there is. A stream that breaks is opened again, at whichever
        coordinator answers, from the last id on; only a refused question raises."""
        path = "/v1/watch" + ("?" + urllib.parse.urlencode({"kinds": ",".join(kinds)}) if kinds else "")
        last = "" if since is None else str(since)
        while True:
            try:
                with self._ask("GET", path, accept="text/event-stream", last=last) as stream:
                    id = ""
                    for raw in stream:
                        name, _, value = raw.decode().rstrip("\r\n").partition(": ")
                        if name == "id":
                            id = value
                        elif name == "data":
                            event = json.loads(value)
                            if id:
                                event["id"], last, id = int(id), id, ""
                            elif event["kind"] == "hello" and not last:
                                last = str(event["index"])
                            yield event
            except Refused as e:
                if 0 < e.status < 500:
                    raise
            except (OSError, HTTPException, ValueError):
                pass  # broken off; ValueError is half an event
            self._first = (self._first + 1) % len(self._bases)
            time.sleep(retry)

    # How they are asked.

    def _get(self, path: str, **query: Any) -> Document:
        pairs: List[Tuple[str, str]] = []
        for name, value in query.items():
            if isinstance(value, bool):
                pairs += [(name, "true")] if value else []
            elif isinstance(value, dict):
                pairs += [(name, f"{k}={v}") for k, v in value.items()]
            elif isinstance(value, list):
                pairs += [(name, str(v)) for v in value]
            elif value is not None:
                pairs.append((name, str(value)))
        return self._ask("GET", path + ("?" + urllib.parse.urlencode(pairs) if pairs else ""))

    def _post(self, path: str, document: Optional[Document]) -> Document:
        return self._ask("POST", path, None if document is None else json.dumps(document).encode())

    def _surely(self, path: str, document: Document, request: str) -> Document:
        """A write that nobody knows the fate of is asked again under its key, which makes all of them one."""
        key = request or secrets.token_hex(16)
        lost, began, wait = False, time.monotonic(), 0.2
        while True:
            try:
                return self._ask("POST", path, json.dumps(document).encode(), key=key)
            except Refused as e:
                lost = lost or e.lost
                if not lost or 0 < e.status < 500 or wait > 4 or time.monotonic() - began > 10:
                    raise
            time.sleep(wait)
            wait *= 2

    def _ask(self, method: str, path: str, body: Optional[bytes] = None, accept: str = "application/json", last: str = "", key: str = "") -> Any:
        """Try the servers in turn. What one refuses all refuse; one that cannot answer is passed over."""
        failed: List[Refused] = []
        first = self._first
        for i in range(len(self._bases)):
            n = (first + i) % len(self._bases)
            try:
                answer = self._send(self._bases[n] + path, method, body, accept, last, key)
            except Refused as e:
                if 0 < e.status < 500:
                    raise
                failed.append(e)
                continue
            self._first = n
            return answer
        failed.sort(key=lambda e: e.code == "unreached")  # a coordinator's own word comes first
        raise Refused(failed[0].code, "; ".join(dict.fromkeys(e.sentence for e in failed)), failed[0].status, failed[0].details, any(e.lost for e in failed))

    def _send(self, url: str, method: str, body: Optional[bytes], accept: str, last: str, key: str) -> Any:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if self._token:
            headers["Authorization"] = "Bearer " + self._token
        if last:
            headers["Last-Event-ID"] = last
        if key:
            headers["Idempotency-Key"] = key
        if method == "GET" and self._wrote:
            headers[_AT_LEAST] = str(self._wrote)
        base, host = "://".join(urllib.parse.urlsplit(url)[:2]), urllib.parse.urlsplit(url).hostname or ""
        opener = self._near if _on_this_machine(host) else self._far
        try:
            if len(self._bases) > 1:
                self._alive(opener, base)
            answer = opener.open(urllib.request.Request(url, data=body, headers=headers, method=method), timeout=self._timeout)
            if accept != answer.headers.get_content_type():
                answer.close()
                raise Refused("unreached", f"no coordinator answers at {base}: its answer is not the document that was asked for; is the address right?")
            if accept == "text/event-stream":
                return answer
            with answer:
                content = answer.read()
            if method == "POST":
                self._wrote = max(self._wrote, int(answer.headers.get(_INDEX) or 0))
            return json.loads(content) if accept == "application/json" else content
        except urllib.error.HTTPError as e:
            with e:
                raise _problem(base, e.code, e.read(1 << 20)) from None
        except (OSError, HTTPException, ValueError) as e:
            never = isinstance(getattr(e, "reason", e), (ConnectionRefusedError, socket.gaierror))
            raise Refused("unreached", f"no coordinator answers at {base}: is it running? ({getattr(e, 'reason', e)})", lost=not never) from None

    def _alive(self, opener: urllib.request.OpenerDirector, base: str) -> None:
        """A server that is stopped takes connections and says nothing: with others to ask, a short wait finds out,
        and the question itself may take its time."""
        try:
            opener.open(base + "/healthz", timeout=min(_SIGN, self._timeout)).close()
        except urllib.error.HTTPError as e:
            e.close()  # somebody is there


def _problem(base: str, status: int, text: bytes) -> Refused:
    try:
        said = json.loads(text)
        return Refused(said["code"], said["message"], status, said.get("details"))
    except (ValueError, KeyError, TypeError, AttributeError):  # not one of ours: something stands in its place
        code, status = ("unavailable", status) if status >= 500 else ("unreached", 0)
        return Refused(code, f"what answers at {base} is no coordinator; is the address right?", status)


def _on_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _quote(text: str) -> str:
    return urllib.parse.quote(text, safe="")


# The command. What it asks for is named as in the API, with - for _.
_NUMBERS = ("seq_len", "batch", "quota_bytes", "chunk_size", "card_memory_bytes", "since", "revision", "margin_bytes")
_WORDS = ("gpu", "driver", "workload", "quota_kind", "origin", "risk", "sweep", "cell", "digest", "before", "after", "max_age")
_COMMANDS = ("quota", "max_seq_len", "max_batch", "replicas", "compare", "coefficients", "coefficient_history", "boundaries", "boundary_history",
             "programs", "status", "agents", "sweeps", "sweep", "traces", "trace", "trace_url", "watch")


def main(argv: Optional[Sequence[str]] = None) -> int:
    """0 done, 1 it failed, 2 a wrong question."""
    parser = argparse.ArgumentParser(prog="oomfleet.py", description="Ask the coordinators of $OOMFLEET_SERVER.")
    parser.add_argument("command", choices=[c.replace("_", "-") for c in _COMMANDS])
    parser.add_argument("id", nargs="?", help="of a sweep, cell or trace")
    for name in _NUMBERS + _WORDS:
        parser.add_argument("--" + name.replace("_", "-"), dest=name, type=int if name in _NUMBERS else str)
    for name in ("env", "param"):
        parser.add_argument("--" + name, action="append", metavar="KEY=VALUE")
    for name in ("extrapolate", "consistent"):
        parser.add_argument("--" + name, action="store_const", const=True)
    given = {k: v for k, v in vars(parser.parse_args(argv)).items() if v is not None}
    command, which = given.pop("command").replace("-", "_"), given.pop("id", None)
    try:
        for name in ("env", "param"):
            if name in given:
                given[name] = dict(p.split("=", 1) for p in given[name])
        ask = getattr(Fleet(), command)
        answer: Union[Document, bytes, Iterator[Document]] = ask(which, **given) if which else ask(**given)
        if isinstance(answer, bytes):
            sys.stdout.buffer.write(answer)
        elif isinstance(answer, dict):
            print(json.dumps(answer, indent=2))
        else:
            for event in answer:
                print(json.dumps(event), flush=True)
        sys.stdout.flush()
    except Refused as e:
        print(f"oomfleet.py: {e.sentence} ({e.code})", file=sys.stderr)
        return 2 if 0 < e.status < 500 or e.code in ("bad_access", "bad_request") else 1
    except (TypeError, ValueError) as e:  # a flag that this question does not have
        print(f"oomfleet.py: {e}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, BrokenPipeError):
        return 1
    except OSError as e:  # the output could not be written
        print(f"oomfleet.py: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
