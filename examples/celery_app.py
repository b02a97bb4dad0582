"""Forwards new users to a Celery task. An update is acknowledged only after the broker has accepted its task.

python -m examples.celery_app                       the subscriber
celery --app examples.celery_app worker             the tasks
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery

from subscriber_sdk import Op, Subscriber, Update, run

__all__ = ["ToTasks", "app", "welcome"]

app = Celery("shop", broker=os.environ.get("CELERY_BROKER_URL", "amqp://"))
# RabbitMQ confirms each task; otherwise publishing returns before the broker has it.
app.conf.broker_transport_options = {"confirm_publish": True}
app.conf.task_ignore_result = True


@app.task
def welcome(user: dict[str, Any]) -> None:
    """Stands for your task. At-least-once delivery means that it may run twice for one user."""
    print(f"welcome, {user['name']}")


class ToTasks(Subscriber):
    """Plain ``def``, because publishing blocks: the callback runs in a thread."""

    def on_update(self, update: Update) -> None:
        """Raises when the broker does not accept the task; then the update is delivered again.

        A repeated update gets the same task id.
        """
        if update.op is Op.INSERT:
            welcome.apply_async((dict(update.after or {}),), task_id=update.id, retry=False)


if __name__ == "__main__":
    run(ToTasks(), application="mail")
