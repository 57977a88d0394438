"""A client of allora's HTTP API: a worker, and an editor of schedules. The standard library is all it needs."""

import itertools
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException


class Refused(Exception):
    """An answer of 4xx. The same request would be refused again, so it is never repeated."""

    def __init__(self, status, problem):
        super().__init__(f"{status}: {problem.get('detail')} {problem.get('remedy', '')}")
        self.status, self.problem = status, problem


class Unknown(Exception):
    """No answer, or one of 5xx: nobody knows whether the request has taken effect."""


class Client:
    """Sends requests to the first of these gateways that answers."""

    def __init__(self, gateways, token=None):
        self.gateways, self.token = list(gateways), token

    def send(self, gateway, method, path, body=None, query=None, headers=None, timeout=30):
        """One request. Returns the value of the answer, and its headers."""
        url = f"{gateway}/v1{path}?{urllib.parse.urlencode(query or {})}"
        headers = {"Content-Type": "application/json", **(headers or {})}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                text = answer.read()
                return (json.loads(text) if text else None), answer.headers
        except urllib.error.HTTPError as error:
            if error.code >= 500:
                raise Unknown(f"{gateway} answered {error.code}") from error
            is_problem = "json" in error.headers.get("Content-Type", "")
            raise Refused(error.code, json.loads(error.read()) if is_problem else {}) from error
        except (OSError, HTTPException, ValueError) as error:
            raise Unknown(f"{gateway}: {error}") from error

    def ask(self, *request, at=None, seconds=30, **more):
        """Repeats the same request at these gateways by turns, for so long."""
        end = time.monotonic() + seconds
        for gateway in itertools.cycle(at or self.gateways):
            try:
                return self.send(gateway, *request, **more)
            except Unknown:
                if time.monotonic() > end:
                    raise
            time.sleep(0.2)


class Schedules(Client):
    """Edits schedules. If an answer was lost, what a repetition is refused for may be the change itself."""

    def add(self, schedule):
        return self.ask("POST", "/jobs", schedule)[0]

    def list(self, **filters):
        page = {}
        while page is not None:
            answer = self.ask("GET", "/jobs", query={**filters, **page})[0]
            yield from answer["items"]
            page = {"page": answer["next"]} if answer.get("next") else None

    def get(self, name):
        """The definition, and the tag with which it can be replaced."""
        definition, headers = self.ask("GET", "/job/definition", query={"name": name})
        return definition, headers["ETag"]

    def put(self, name, definition, tag):
        """Replaces the definition if it still has this tag; `Refused` with 412 if it has changed."""
        return self.ask("PUT", "/job/definition", definition, {"name": name}, {"If-Match": tag})[0]

    def pause(self, name, note=""):
        return self.ask("POST", "/job/pause", {"note": note}, {"name": name})[0]

    def resume(self, name):
        return self.ask("POST", "/job/resume", {}, {"name": name})[0]

    def trigger(self, name, id=None):
        """Runs the job now, once for each id."""
        return self.ask("POST", "/job/trigger", {"id": id or str(uuid.uuid4())}, {"name": name})[0]

    def delete(self, name):
        return self.ask("DELETE", "/job", query={"name": name})[0]


class Run:
    """A run of this worker. Its code looks at `stop` from time to time, and ends when that is set."""

    def __init__(self, gateway, fields):
        self.gateway, self.fields, self.token = gateway, fields, fields["token"]
        self.lease, self.until = fields["lease_ms"] / 1000, 0.0
        self.stop, self.lost = threading.Event(), False

    def __getattr__(self, name):
        return self.fields[name]


class Worker(Client):
    """Runs `handle(run)` for each run of these kinds, at most `max` at a time. What it returns is the output of the
    run, and an exception is its failure."""

    def __init__(self, gateways, kinds, handle, max=10, token=None, name="python"):
        super().__init__(gateways, token)
        self.kinds, self.handle, self.max, self.name, self.turn = list(kinds), handle, max, name, 0
        self.runs, self.free, self.ended = {}, threading.Condition(), threading.Event()

    def run(self):
        """Works until `ended` is set, and what was begun is done."""
        keeper = threading.Thread(target=self._keep, daemon=True)
        keeper.start()
        with ThreadPoolExecutor(self.max) as pool:
            while not self.ended.is_set():
                with self.free:
                    self.free.wait_for(lambda: len(self.runs) < self.max)
                for run in self._claim(self.max - len(self.runs)):
                    pool.submit(self._work, run)

    def _claim(self, room):
        body = {"worker": self.name, "kinds": self.kinds, "max": room, "wait_ms": 10_000}
        body["claim_id"] = str(uuid.uuid4())
        gateway = self.gateways[self.turn % len(self.gateways)]
        # If the answer was lost, the same id gets the same runs, at this gateway alone.
        for _ in range(2):
            try:
                answer, _ = self.send(gateway, "POST", "/claims", body, timeout=20)
                break
            except Unknown:
                time.sleep(0.2)
        else:
            self.turn += 1
            return []
        runs = [Run(gateway, fields) for fields in (answer or {"runs": []})["runs"]]
        # The lease counts from the sending of an accepted heartbeat: who knows how long the answer took.
        self._beat(gateway, runs)
        with self.free:
            runs = [run for run in runs if run.until > time.monotonic() and not run.stop.is_set()]
            self.runs.update({run.token: run for run in runs})
        return runs

    def _work(self, run):
        try:
            try:
                path, body = "/claim/complete", {"output": self.handle(run)}
            except Exception as error:
                path, body = "/claim/fail", {"error": str(error) or type(error).__name__}
            if not run.lost:
                # Any gateway takes a completion, by its fence; only the one that gave the run takes a failure.
                at = [run.gateway] if "error" in body else [run.gateway, *self.gateways]
                self.ask("POST", path, {"token": run.token, **body}, at=at, seconds=60)
        except (Refused, Unknown):
            pass  # Another attempt has taken its place, or will do so.
        finally:
            with self.free:
                self.runs.pop(run.token, None)
                self.free.notify_all()

    def _keep(self):
        """Sends a heartbeat after a third of the lease, and stops the runs whose lease is over."""
        beats, begun = {}, time.monotonic()
        while True:
            time.sleep(0.1)
            with self.free:
                runs = list(self.runs.values())
            now = time.monotonic()
            for run in runs:
                if now >= run.until:
                    run.stop.set()
            for gateway in {run.gateway for run in runs}:
                those = [run for run in runs if run.gateway == gateway and now < run.until and not run.lost]
                if those and now - beats.get(gateway, begun) >= min(run.lease for run in those) / 3:
                    beats[gateway] = now
                    threading.Thread(target=self._beat, args=(gateway, those), daemon=True).start()

    def _beat(self, gateway, runs):
        if not runs:
            return
        sent, by_token = time.monotonic(), {run.token: run for run in runs}
        try:
            body = {"tokens": list(by_token)}
            answer, _ = self.send(gateway, "POST", "/claim/heartbeat", body, timeout=runs[0].lease / 3)
        except (Refused, Unknown):
            return  # Unknown is not lost: the runs go on until their lease is over.
        for told in answer["runs"]:
            run, state = by_token[told["token"]], told["state"]
            if state in ("ok", "cancel"):
                run.until = max(run.until, sent + told["lease_ms"] / 1000)
            if state in ("cancel", "lost"):
                run.lost = run.lost or state == "lost"
                run.stop.set()
