"""The taskset of make.py."""

import verifiers.v1 as vf

__all__ = ["SumsTaskset"]


class SumsData(vf.TaskData):
    answer: str
    part: str


class SumsTask(vf.Task[SumsData]):
    @vf.reward(weight=0.75)
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.nodes[-1].message.content == self.data.answer)

    @vf.reward(weight=0.25)
    async def near(self, trace: vf.Trace) -> float:
        return float(abs(int(trace.nodes[-1].message.content) - int(self.data.answer)) < 2)

    @vf.metric
    async def digits(self, trace: vf.Trace) -> float:
        return float(len(trace.nodes[-1].message.content))


class SumsTaskset(vf.Taskset[SumsTask, vf.TasksetConfig]):
    def load(self):
        return [
            SumsTask(
                SumsData(prompt=f"{n} + {n} = ?", answer=str(2 * n), part=part), self.config.task
            )
            for n, part in enumerate(("I", "I", "II", "II"), 1)
        ]
