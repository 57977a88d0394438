"""Uses a client that a generator has made of /v1/openapi.json. Arguments: the folder of the client, the address."""

import sys

sys.path.insert(0, sys.argv[1])

from generated import Client
from generated.api.default import (
    delete_job,
    get_deleted,
    get_job_definition,
    get_job_history,
    get_job_next,
    get_jobs,
    get_summary,
    post_audit_undo,
    post_claim_complete,
    post_claims,
    post_job_trigger,
    post_jobs,
)
from generated.models import (
    ClaimComplete,
    Claims,
    Problem,
    StoredSchedule,
    TriggerBody,
)

client = Client(base_url=sys.argv[2])


def is_problem(answer, status):
    assert isinstance(answer, Problem) and answer.status == status, answer


job = StoredSchedule(name="acme/report", kind="report", schedule="every day at 9am Europe/Rome")
made = post_jobs.sync(client=client, body=job)
assert made.name == "acme/report" and made.next_.due_at.hour in (7, 8), made
is_problem(post_jobs.sync(client=client, body=job), 409)
refused = post_jobs.sync(client=client, body=StoredSchedule(name="b", kind="k", schedule="every dya"))
is_problem(refused, 422)
assert refused.range_, refused

assert [job.name for job in get_jobs.sync(client=client, prefix="acme/").items] == ["acme/report"]
assert get_job_definition.sync(client=client, name="acme/report").schedule == job.schedule
assert len(get_job_next.sync(client=client, name="acme/report", count=3).items) == 3
assert get_summary.sync(client=client).jobs.number == 1

sent = post_job_trigger.sync(client=client, name="acme/report", body=TriggerBody())
ask = Claims(worker="w", kinds=["report"], claim_id="1", wait_ms=30_000)
run = post_claims.sync(client=client, body=ask).runs[0]
assert (run.name, run.trigger, run.attempt) == ("acme/report", sent.id, 1), run
ended = post_claim_complete.sync(client=client, body=ClaimComplete(token=run.token, output="12 rows"))
assert ended.outcome == "succeeded", ended
entry = get_job_history.sync(client=client, name="acme/report").items[0]
assert (entry.outcome, entry.attempt) == ("succeeded", 1), entry

gone = delete_job.sync(client=client, name="acme/report")
assert [change.name for change in get_deleted.sync(client=client).items] == ["acme/report"]
post_audit_undo.sync(client=client, name="acme/report", sequence=gone.sequence)
assert get_jobs.sync(client=client).items[0].name == "acme/report"
is_problem(delete_job.sync(client=client, name="none"), 404)
print("done")
