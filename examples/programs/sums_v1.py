"""A taskset of the package `verifiers`: sums, whose answer is judged by a function."""

import verifiers.v1 as vf

__all__ = ["Sums"]


class SumData(vf.TaskData):
    answer: int


class Sum(vf.Task[SumData]):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float(f"<answer>{self.data.answer}</answer>" in trace.last_reply)


class Sums(vf.Taskset[Sum, vf.TasksetConfig]):
    def load(self):
        for i in range(200):
            a, b = 2 + i % 9, 3 + i // 9
            question = f"Question: Ada has {a} pens. Ada gets {b} more. How many pens does Ada have now?"
            yield Sum(SumData(prompt=f"{question}\n(none)\nWhat is the answer? Reply <answer>words</answer>.", answer=a + b))
