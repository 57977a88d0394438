"""A worker, or an editor, by the client for Python: what tests start. The worker writes when each run begins and when
its work is done, as lines of JSON."""

import json
import os
import sys
import time
from datetime import datetime

sys.path.insert(0, sys.argv[1])
from allora_client import Refused, Schedules, Worker

GATEWAYS, TOKEN = sys.argv[3].split(","), os.environ.get("TOKEN")


def work(kind, most, path):
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(run, what):
        occurrence = round(datetime.fromisoformat(run.scheduled_at).timestamp() * 1000)
        line = {"job": run.name, "node": str(os.getpid()), "at": time.time_ns() // 1_000_000, "what": what}
        line |= {"occurrence": occurrence, "fence": run.fence}
        os.write(log, json.dumps(line).encode() + b"\n")

    def handle(run):
        write(run, "start")
        if run.stop.wait(run.data["seconds"]):
            write(run, "stopped")
            raise RuntimeError("it was told to stop")
        write(run, "done")
        return f"attempt {run.attempt}"

    Worker(GATEWAYS, [kind], handle, max=int(most), token=TOKEN).run()


def edit():
    schedules = Schedules(GATEWAYS, TOKEN)
    for i in range(5):
        schedules.add({"name": f"edited/{i}", "kind": "nobody", "schedule": "@daily", "data": {"i": i}})
    print("listed", len(list(schedules.list(prefix="edited/", limit=2))))
    definition, tag = schedules.get("edited/0")
    schedules.put("edited/0", {**definition, "schedule": "@hourly"}, tag)
    try:
        schedules.put("edited/0", definition, tag)
    except Refused as refused:
        print("stale", refused.status)
    schedules.pause("edited/1", "for a while")
    schedules.resume("edited/1")
    for _ in range(2):
        schedules.trigger("edited/0", "once")
    schedules.delete("edited/2")
    print("left", " ".join(job["name"] for job in schedules.list(prefix="edited/")))


work(*sys.argv[4:]) if sys.argv[2] == "work" else edit()
