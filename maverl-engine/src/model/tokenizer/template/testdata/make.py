"""Renders cases.json's templates with jinja2, in the environment that transformers makes (utils/chat_template_utils.py).

    python make.py    # jinja2 3.1

Writes the key `text` of each case, or `error` where the template fails.
"""

import json
import pathlib

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_said")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _said(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


environment = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
)
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception

path = pathlib.Path(__file__).parent / "cases.json"
cases = json.loads(path.read_text())
for case in cases:
    case.pop("text", None), case.pop("error", None)
    template = case["template"]
    source = "\n".join(template) if isinstance(template, list) else template
    try:
        case["text"] = environment.from_string(source).render(**case["variables"])
    except Exception as error:
        case["error"] = str(error)
path.write_text(json.dumps(cases, indent=1, ensure_ascii=False) + "\n")
