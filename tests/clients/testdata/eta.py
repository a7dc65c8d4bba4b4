"""Celery with its defaults: tasks that wait for their time do not keep another one from running.

Usage: eta.py URL. The worker, which celery starts, imports this file, too, and finds the URL in the environment.
"""
import os
import subprocess
import sys

from celery import Celery

app = Celery("eta", broker=os.environ.get("BROKER") or sys.argv[1], backend="rpc://")


@app.task(name="eta.run")
def run():
    return "ran"


def main():
    environ = dict(os.environ, BROKER=sys.argv[1], PYTHONPATH=os.path.dirname(os.path.abspath(__file__)), PYTHONDONTWRITEBYTECODE="1")
    worker = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "eta", "worker", "-c", "2", "-l", "ERROR"],
        env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        print("the worker", run.delay().get(timeout=120))
        for _ in range(12):  # the worker's prefetch is eight
            run.apply_async(countdown=3600)
        print("a task without a countdown", run.delay().get(timeout=60))
    finally:
        worker.terminate()
        worker.wait()


if __name__ == "__main__":
    main()
