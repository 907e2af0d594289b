"""Tasks of Celery that are rejected, retried until no retry is left, or not known to the worker."""

from celery import Celery
from celery.exceptions import Reject
from kombu import Connection, Queue
from lab import LETTERS, MENDED, PREFIX, URL, Declined, Hiccup, take

DEAD = f"{PREFIX}shop.dead"
app = Celery("shop", broker=URL)
app.conf.update(
    task_queues=[
        Queue(f"{PREFIX}shop", queue_arguments={
            "x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD,
        })
    ],
    task_default_queue=f"{PREFIX}shop",
    task_acks_late=True,
    task_acks_on_failure_or_timeout=False,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
)  # fmt: skip


def pay(self, letter: str) -> None:
    told = {"retries": self.request.retries, "correlation_id": self.request.correlation_id}
    try:
        way = take(letter, [self.request.args, self.request.kwargs], {"id": self.request.id, **told})
    except Hiccup as error:
        raise self.retry(exc=error, countdown=0) from error
    if way == "rejected":
        raise Reject("declined", requeue=False)
    if way == "retried":
        raise self.retry(exc=Declined(letter), countdown=0)
    if way == "raised":
        raise Declined(letter)


for name in ("shop.pay", "shop.renamed") if MENDED else ("shop.pay",):
    app.task(pay, name=name, bind=True, max_retries=2)
if not MENDED:
    with Connection(URL) as connection:
        Queue(DEAD, channel=connection).declare()
    for each in LETTERS:
        task = "shop.renamed" if each.startswith("unknown.") else "shop.pay"
        app.send_task(task, kwargs={"letter": each})
QUIET = ("--without-gossip", "--without-mingle", "--without-heartbeat")
app.worker_main(["worker", "--pool=threads", "--concurrency=1", *QUIET])
