"""A cluster whose workers are objects of this process, called in threads: no Ray is needed.

A worker is killed by :meth:`ThreadCluster.crash`; calls that wait for it then fail, as those of a
process that is gone do.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from lm_eval_bayes.harness.models.ray.cluster import WorkerDiedError
from lm_eval_bayes.harness.models.ray.worker import TrialWorker


class ThreadCluster:
    """Stands in for `RayCluster`."""

    started = True

    def __init__(self, nodes=({"CPU": 8.0},), kind=TrialWorker):
        self.kind, self._nodes = kind, list(nodes)
        self._threads = ThreadPoolExecutor(64)
        self.alive, self.killed = [], []
        self._calls = {}
        self.closed = False

    def nodes(self):
        return self._nodes

    def start(self, setup, resources):
        worker = self.kind(setup)
        worker.cluster = self
        self.alive.append(worker)
        self._calls[worker] = []
        return worker

    def call(self, worker, method, *arguments):
        call = Future()
        if worker not in self.alive:
            call.set_exception(WorkerDiedError("its process has died"))
            return call
        self._calls[worker].append(call)
        self._threads.submit(self._run, call, getattr(worker, method), arguments)
        return call

    def _run(self, call, method, arguments):
        try:
            answer = method(*arguments)
        except BaseException as error:
            if not call.done():
                call.set_exception(error)
            return
        if not call.done():
            call.set_result(answer)

    def shared(self, value):
        return value

    def wait(self, references, timeout_s):
        return list(wait(references, timeout_s, FIRST_COMPLETED).done) if references else []

    def result(self, reference):
        return reference.result()

    def crash(self, worker):
        """End a worker without its doing."""
        if worker in self.alive:
            self.alive.remove(worker)
            for call in self._calls.pop(worker):
                if not call.done():
                    call.set_exception(WorkerDiedError("its process has died"))
            if worker._session is not None:
                worker._session.cancel()

    def kill(self, worker):
        self.killed.append(worker)
        self.crash(worker)

    def close(self):
        self.closed = True
        self._threads.shutdown(wait=False)
