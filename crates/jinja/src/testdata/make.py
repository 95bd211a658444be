"""Renders the templates of cases.json with jinja2, in the environment that transformers makes (utils/chat_template_utils.py).

    python make.py    # jinja2 3.1

A case has a template, and variables that are added to those of the file. Writes the key `text` of each case, or `error`
where the template fails.
"""

import datetime
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
        call = self.call_method("_generated")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _generated(self, caller):
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
environment.globals["strftime_now"] = datetime.datetime(2024, 7, 26).strftime

path = pathlib.Path(__file__).parent / "cases.json"
file = json.loads(path.read_text())
for case in file["cases"]:
    case.pop("text", None), case.pop("error", None)
    try:
        template = environment.from_string("\n".join(case["template"]))
        case["text"] = template.render(**{**file["variables"], **case.get("variables", {})})
    except Exception as error:
        case["error"] = str(error)


def dumped(value):
    return json.dumps(value, ensure_ascii=False)


def written(case):
    if len(case["template"]) == 1:
        return dumped(case)
    entries = {key: dumped(value) for key, value in case.items()}
    entries["template"] = json.dumps(case["template"], indent=1, ensure_ascii=False)
    return "{" + ",\n".join(f'"{key}": {entry}' for key, entry in entries.items()) + "}"


cases = ",\n".join(map(written, file["cases"]))
path.write_text(f'{{"variables": {dumped(file["variables"])},\n"cases": [\n{cases}\n]}}\n')
