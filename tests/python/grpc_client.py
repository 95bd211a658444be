"""Plays episodes of `maverl serve environment` over gRPC, with the package grpcio.

    python grpc_client.py math|tools 127.0.0.1:8000 KEY

The tasks are sums, as `What is 3 + 4?`. Messages are those of `environment.proto`, compiled here; health and reflection are
asked too. Prints the number of episodes; a failure raises.
"""

import importlib.metadata
import json
import pathlib
import re
import sys
import tempfile
import uuid

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_tools import protoc

EPISODES = 100
KIND, ADDRESS, KEY = sys.argv[1:4]
SERVICE = "maverl.environment.v1.Environment"

proto = pathlib.Path(__file__).resolve().parents[2] / "maverl/src/env/grpc"
compiled = tempfile.mkdtemp()
options = [f"-I{proto}", f"--python_out={compiled}", f"--grpc_python_out={compiled}", "environment.proto"]
assert protoc.main(["protoc", *options]) == 0
sys.path.insert(0, compiled)
import environment_pb2 as pb  # noqa: E402
import environment_pb2_grpc as pb_grpc  # noqa: E402

channel = grpc.insecure_channel(ADDRESS)
environment = pb_grpc.EnvironmentStub(channel)
with_key = [("authorization", f"Bearer {KEY}")]


def refused(code, call, request, metadata=with_key):
    """Checks that a request is refused with a code, and returns the message."""
    try:
        call(request, metadata=metadata)
    except grpc.RpcError as error:
        assert error.code() == code, error
        return error.details()
    raise AssertionError(f"{request} is accepted")


def play(task, right):
    """Plays an episode, and returns its reward."""
    request = pb.OpenRequest(task_id=task.id, seed=7, request_id=str(uuid.uuid4()), lease_s=30)
    opened = environment.Open(request, metadata=with_key)
    assert opened.session == environment.Open(request, metadata=with_key).session
    first, second = (int(number) for number in re.search(r"(\d+) \+ (\d+)", opened.question).groups())
    total = str(first + second)
    names = [tool.name for tool in opened.tools]
    if KIND == "tools":
        assert names == ["calculator"], names
        assert "properties" in json.loads(opened.tools[0].parameters)
        call = pb.ToolCall(name="calculator", arguments=json.dumps({"expression": f"{first} + {second}"}))
        request = pb.ActRequest(session=opened.session, step=1, call=call)
        seen = environment.Act(request, metadata=with_key)
        assert seen == environment.Act(request, metadata=with_key) and not seen.done, seen
        total = seen.text
    assert opened.lease_s == 30
    environment.Renew(pb.RenewRequest(session=opened.session), metadata=with_key)
    answer = pb.JudgeRequest(session=opened.session, answer=total if right else "-1")
    score = environment.Judge(answer, metadata=with_key)
    assert score.solved == right and isinstance(json.loads(score.metrics), dict), score
    assert environment.Close(pb.CloseRequest(session=opened.session), metadata=with_key).closed
    message = refused(grpc.StatusCode.NOT_FOUND, environment.Judge, answer)
    assert opened.session in message, message
    return score.reward


described = environment.Describe(pb.DescribeRequest(), metadata=with_key)
assert described.name == KIND and [(split.name, split.tasks) for split in described.splits] == [("train", 8)], described
tasks = list(environment.Tasks(pb.TasksRequest(), metadata=with_key))
assert len(tasks) == 8 and all("+" in task.question for task in tasks), tasks
rewards = [play(tasks[index % 8], index % 2 == 0) for index in range(EPISODES)]
assert rewards == [1.0 if index % 2 == 0 else 0.0 for index in range(EPISODES)], rewards



def opened(task):
    request = pb.OpenRequest(task_id=task.id, seed=7, request_id=str(uuid.uuid4()))
    return environment.Open(request, metadata=with_key).session


def action(**place):
    """A step that both environments answer."""
    call = pb.ToolCall(name="calculator", arguments=json.dumps({"expression": "1 + 1"}))
    return pb.ActRequest(**place, call=call) if KIND == "tools" else pb.ActRequest(**place, text="-1")


# Steps of several sessions in one request, of which one is of no session.
sessions = [opened(task) for task in tasks]
acts = [action(session=session, step=1) for session in sessions] + [action(session="none", step=1)]
answers = {answer.index: answer for answer in environment.ActMany(pb.ActManyRequest(acts=acts), metadata=with_key)}
assert sorted(answers) == list(range(9)), answers
assert all(answers[index].done.text for index in range(8)), answers
assert answers[8].failure.code == grpc.StatusCode.NOT_FOUND.value[0], answers[8]

# A copy goes on with the second step.
copy = environment.Fork(pb.ForkRequest(session=sessions[0], request_id=str(uuid.uuid4())), metadata=with_key)
assert copy.task.id == tasks[0].id and copy.session != sessions[0], copy
for session in [copy.session, sessions[0]]:
    assert environment.Act(action(session=session, step=2), metadata=with_key).text
for session in [copy.session, *sessions]:
    environment.Close(pb.CloseRequest(session=session), metadata=with_key)

# An episode as a stream, whose end closes the session.
total = str(sum(int(number) for number in re.findall(r"\d+", tasks[1].question)))
asks = [
    pb.PlayRequest(open=pb.OpenRequest(task_id=tasks[1].id, seed=7)),
    pb.PlayRequest(act=action()),
    pb.PlayRequest(judge=pb.JudgeRequest(answer=total)),
]
answers = list(environment.Play(iter(asks), metadata=with_key))
assert [answer.WhichOneof("message") for answer in answers] == ["open", "act", "judge"], answers
assert answers[2].judge.solved and answers[2].judge.reward > 0, answers
refused(grpc.StatusCode.NOT_FOUND, environment.Renew, pb.RenewRequest(session=answers[0].open.session))

wrong = [("authorization", "Bearer another-key")]
refused(grpc.StatusCode.UNAUTHENTICATED, environment.Describe, pb.DescribeRequest(), wrong)
refused(grpc.StatusCode.UNAUTHENTICATED, environment.Describe, pb.DescribeRequest(), None)
refused(grpc.StatusCode.INVALID_ARGUMENT, environment.Open, pb.OpenRequest(task_id="none"))
large = pb.ActRequest(session="none", step=1, text="x" * (17 << 20))
refused(grpc.StatusCode.OUT_OF_RANGE, environment.Act, large)
malformed = channel.unary_unary(f"/{SERVICE}/Act")
refused(grpc.StatusCode.INTERNAL, malformed, b"\xff\xff\xff")

health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=SERVICE), metadata=with_key)
assert health.status == health_pb2.HealthCheckResponse.SERVING, health


class WithKey(grpc.StreamStreamClientInterceptor):
    """Adds the key to requests of the package for reflection, which takes no metadata."""

    def intercept_stream_stream(self, continuation, details, requests):
        return continuation(details._replace(metadata=with_key), requests)


services = ProtoReflectionDescriptorDatabase(grpc.intercept_channel(channel, WithKey())).get_services()
assert SERVICE in services and "grpc.health.v1.Health" in services, services

page = (pathlib.Path(__file__).resolve().parents[2] / "docs/src/grpc.md").read_text()
example = page.split("```python\n")[1].split("```")[0]
exec(example.replace("127.0.0.1:8000", ADDRESS).replace("Bearer none", f"Bearer {KEY}"))
print(f"grpcio {importlib.metadata.version('grpcio')}: {EPISODES} episodes of {KIND}")
