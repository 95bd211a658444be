"""Renders the templates of expressions.json with jinja2, in the environment that transformers makes (utils/chat_template_utils.py).

    python make.py [--check N]    # jinja2 3.1

Writes the key `text` of each case, or null where the template fails. `--check N` writes N random templates to stdout instead,
in the same form.
"""

import argparse
import copy
import json
import pathlib
import random
import re
import sys
import warnings

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

warnings.simplefilter("ignore")  # invalid escapes


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols], optimized=False)
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception

VARIABLES = {
    "messages": [
        {"role": "system", "content": "  Be brief.\n"},
        {"role": "user", "content": "Hi <b>\"you\"</b> & 'me' ✓", "items": [1, 2]},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "add", "arguments": {"b": 2, "a": 1.5}}]},
    ],
    "text": "One two  Three\tfour\nfive-six é",
    "n": 7, "f": 2.5, "t": True, "none": None, "empty": "", "words": ["b", "A", "c", "a"], "d": {"z": 1, "a": None, "k": "v"},
}


def rendered(source):
    try:
        return environment.from_string(source).render(**copy.deepcopy(VARIABLES))  # `indent` changes lists
    except Exception:
        return None


VALUES = ["n", "f", "t", "none", "empty", "text", "words", "d", "messages", "messages[1]", "messages[1].content", "missing", "0",
          "-3", "1.0", "1e20", "'ab'", "'é✓'", "[]", "[1, 'a', none]", "(1, 2)", "{'a': 1}", "true", "false", "2**5"]
INFIX = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "and", "or", "in", "not in"]
FILTERS = ["upper", "lower", "title", "capitalize", "trim", "length", "string", "int", "float", "abs", "round", "round(1)", "first",
           "last", "list", "reverse|list", "join", "join(', ')", "sort", "sort(reverse=true)", "unique|list", "sum", "min", "max",
           "tojson", "tojson(indent=2)", "default('x')", "default('x', true)", "d(1)", "replace('a', 'bb')", "wordcount",
           "batch(2)|list", "batch(2, 0)|list", "slice(2)|list", "slice(3, 0)|list", "map('upper')|list", "select|list",
           "reject|list", "select('string')|list", "reject('none')|list", "map(attribute='role')|list", "items|list", "dictsort",
           "selectattr('role', 'equalto', 'user')|list", "selectattr('role')|list", "rejectattr('content')|list",
           "groupby('role')|list", "truncate(8)", "truncate(8, true)", "truncate(9, false, '..', 0)", "indent", "indent(2, true)",
           "center(20)", "striptags", "urlencode", "format(1)", "sort(attribute='role')|list", "sum(attribute='x')", "count",
           "map(attribute='x', default='-')|list", "join('-', attribute='role')", "escape", "attr('x')"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "sequence", "iterable",
         "odd", "even", "true", "false", "lower", "upper", "divisibleby(2)", "divisibleby 3", "in [1, 7]", "eq 7", "ne(7)",
         "gt 1", "le 2.5", "sameas none", "callable"]
CALLS = [".upper()", ".split()", ".split(' ')", ".split(' ', 1)", ".rsplit(' ', 1)", ".rsplit()", ".strip()", ".strip('é')",
         ".lstrip()", ".rstrip('é ')", ".title()", ".capitalize()", ".swapcase()", ".startswith('O')", ".endswith(('é', 'x'))",
         ".find('t')", ".rfind('t')", ".count('e')", ".count('')", ".replace('e', 'E', 1)", ".replace('', '-')", ".splitlines()",
         ".splitlines(true)", ".partition(' ')", ".rpartition(' ')", ".zfill(5)", ".center(9, '*')", ".center(8)", ".ljust(9)",
         ".rjust(9, '.')", ".isdigit()", ".isalpha()", ".isupper()", ".istitle()", ".expandtabs(4)", ".removeprefix('One')",
         ".removesuffix('é')", ".index('t')", ".index(7)", ".items()", ".items()|list", ".keys()|list", ".values()|list",
         ".get('a')", ".get('q', 5)", ".role", "['role']", "[0]", "[-1]", "[1:]", "[::-1]", "[-3:-1]", "[::2]", "[5]", ".0",
         ".join(words)", ".copy()", ".format(1, 2)", ".islower()", ".isspace()", ".casefold()", ".is_integer()", ".foo"]
FORMATS = ["'%d|%5d|%-5d|%05d|%+d|%x|%#x|%o' % (n, n, n, n, n, n, n, n)", "'%s|%r|%5s|%-5s|%.2s' % ('abc', 'a', 'b', 'c', 'defg')",
           "'%f|%.2f|%8.3f|%e|%g|%G' % (f, f, f, f, f, 1e-10)", "'%(a)s %%' % {'a': 1}", "'%c' % 65", "'%s' % none", "'%d' % 'x'",
           "'%s %s' % (1,)", "'%s' % (1, 2)", "'{}{}'.format(1, 'a')", "'{1}{0}'.format(1, 'a')", "'{a}'.format(a=none)",
           "'{:>5}|{:<5}|{:^5}|{:*^7}'.format(1, 2, 3, 'ab')", "'{:05d}|{:+d}|{:x}|{:,}'.format(n, n, 255, 1234567)",
           "'{:.2f}|{:8.1f}|{:e}|{:g}|{:%}'.format(f, f, f, f, f)", "'{0[a]}{0[k]}'.format(d)", "'{!r}|{!s}'.format('a', 'a')",
           "'{{}}{}'.format(1)", "'{:s}'.format('x')", "'{:d}'.format('x')", "'{}'.format()", "'{:.3}'.format('abcdef')",
           "'{:5}|'.format('ab')", "'{:5}|'.format(true)", "'{:>08.2f}'.format(-f)", "'{:08.2f}'.format(-f)"]


def expression(r, depth=2):
    k = r.random()
    if depth == 0 or k < 0.2:
        return r.choice(VALUES)
    if k < 0.4:
        return f"({expression(r, depth - 1)} {r.choice(INFIX)} {expression(r, depth - 1)})"
    if k < 0.6:
        return f"({expression(r, depth - 1)}|{r.choice(FILTERS)})"
    if k < 0.8:
        return f"({expression(r, depth - 1)}){r.choice(CALLS)}"
    if k < 0.87:
        return f"({expression(r, depth - 1)} is {r.choice(['', 'not '])}{r.choice(TESTS)})"
    if k < 0.92:
        return f"({expression(r, depth - 1)} if {expression(r, depth - 1)} else {expression(r, depth - 1)})"
    if k < 0.96:
        return f"(not {expression(r, depth - 1)})"
    return f"[{expression(r, depth - 1)}, {expression(r, depth - 1)}]"


BLOCKS = [
    "{% for m in messages %}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ m.role }}{% endfor %}",
    "{% for w in words if w != 'A' %}{{ loop.revindex }}{{ loop.length }}{{ w }}{{ loop.previtem }}{{ loop.nextitem }}{% else %}x{% endfor %}",
    "{% for w in [] %}a{% else %}none{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}{% for c in 'aé' %}{{ c }}.{% endfor %}",
    "{% for w in words %}{% if loop.index == 3 %}{% break %}{% endif %}{% if w == 'A' %}{% continue %}{% endif %}{{ w }}{% endfor %}",
    "{% set x = 1 %}{% for w in words %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}",
    "{% set ns = namespace(x=1, y='a') %}{% for w in words %}{% set ns.x = ns.x * 2 %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.z is defined }}",
    "{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=1, a=0) }}{{ m(1, 2, 3, 4, z=5) }}",
    "{% macro m(x) %}[{{ caller(x) }}]{% endmacro %}{% call(y) m(3) %}{{ y * 2 }}{% endcall %}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% set x %}  a{{ n }} {% endset %}[{{ x }}][{{ x | trim }}]",
    "{% set x | upper | trim %} a{{ n }} {% endset %}[{{ x }}]",
    "{% filter upper %}a{{ text }}{% endfilter %}",
    "{% with a = 1, b = n %}{{ a + b }}{% endwith %}{{ a is defined }}",
    "{% if n > 5 and not none %}a{% elif n %}b{% else %}c{% endif %}",
    "  {% if true %}\n  a\n  {% endif %}\n b {%- if true -%}  c  {%- endif -%}  d\n",
    "{% raw %} {{ a }} {% if %} {% endraw %} b",
    "a {# comment #} b\n  {# line #}\nc {#- x -#} d",
    "{{- ' a ' -}}  b  {{+ 1 }}",
    "{%+ if true %}  x{%+ endif +%}\n y",
    "{% block a %}{{ n }}{% endblock a %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d2) = (3, 4) %}{{ c }}{{ d2 }}",
    "{% set a = [1, 2] %}{% set b = a + [3] %}{{ a }}{{ b }}",
    "{% for a in [1, [2, [3]]] recursive %}{% if a is iterable %}({{ loop(a) }}){% else %}{{ a }}@{{ loop.depth }}{% endif %}{% endfor %}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set j = joiner('|') %}{{ j() }}{{ j() }}",
    "{% for w in words %}{{ loop.cycle('x', 'y') }}{{ loop.changed(w == 'A') }}{% endfor %}",
    "{% for m in messages %}{% for w in words %}{{ loop.index0 }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% for m in messages %}{% set outer = loop %}{% for w in words %}{{ outer.index }}{% endfor %}{% endfor %}",
    "{{ range(5) | list }}{{ range(1, 10, 3) | list }}{{ range(5, 0, -2) | list }}{{ range(200000) }}",
    "{{ dict(a=1, b=2) }}{{ dict([('x', 1)], y=2) }}{{ namespace(a=1).a }}",
    "{{ 1 < n < 10 }}{{ 10 > n > 8 }}{{ 1 == 1.0 == true }}{{ not n == 7 }}",
    "{{ 'a' 'b' \"c\" }}{{ 'it\\'s \\n \\t \\\\ \\x41 \\u00e9 \\q' }}",
    "{{ 0x1F }}{{ 0b101 }}{{ 0o17 }}{{ 1_000 }}{{ 1.5e3 }}{{ 2e-7 }}{{ 1e16 }}{{ 123456789012345678901234567890 }}",
    "{{ -n ** 2 }}{{ 2 ** 3 ** 2 }}{{ -7 // 2 }}{{ -7 % 3 }}{{ 7 // -2 }}{{ 7 % -3 }}{{ 7.5 // 2 }}{{ -7.5 % 2 }}{{ 1 / 3 }}",
    "{{ [1, 2, 3][1:] }}{{ 'hello'[1:-1] }}{{ (1, 2, 3)[::-1] }}{{ 'hello'[::-2] }}{{ ''[::-1] }}{{ [][::-1] }}{{ [1, 2][5:] }}",
    "{{ d.items }}", "{{ d['z'] }}{{ d.z }}{{ d['q'] }}{{ d.q }}{{ d.q.r }}", "{{ messages[1].items }}", "{{ messages[1]['items'] }}",
    "{{ messages[0]['content'] | trim }}{{ messages[-1]['content'] is none }}{{ messages | length }}",
    "{{ none }}{{ true }}{{ missing }}{{ [none, true, 'a', 1.0] }}{{ {'a': none} }}{{ () }}{{ (1,) }}",
    "{{ \"it's\" }}{{ [\"it's\", 'a\"b', 'a\\nb'] }}", "{{ missing.x }}", "{{ none.x }}", "{{ missing + 1 }}", "{{ missing | length }}",
    "{{ 'a' in missing }}{{ missing == 1 }}{{ missing == missing2 }}{{ [] == missing }}", "{% for x in missing %}a{% endfor %}b", "{% for x in none %}{% endfor %}",
    "{{ 'x' if missing else 'y' }}{{ 'x' if false }}", "{{ words.append('x') }}", "{{ raise_exception('stop') }}", "{{ text.__class__ }}",
    "{% print n %}", "{% if n is defined and n is not none %}a{% endif %}", "{{ n is eq 7 and t }}", "{{ (n, t) }}", "{{ n, t }}",
    "{{ 'a' ~ 1 ~ none ~ 1.5 ~ [1] }}", "{{ '%s' | format(n) }}", "{{ text | replace('o', 'O', 1) }}", "{{ 5 | default(1) }}",
    "{{ messages | map(attribute='role') | join(',') }}", "{{ messages | selectattr('role', 'in', ['user']) | list | length }}",
    "{{ (messages | first).role }}{{ messages | last | attr('role') }}", "{{ n if n else f if f else t }}", "{{ d | dictsort(by='key') }}",
    "{{ words | sort }}{{ words | sort(case_sensitive=true) }}{{ words | unique | list }}{{ ['a', 'A'] | unique | list }}",
    "{{ 2.5 | round }}{{ 3.5 | round }}{{ 2.675 | round(2) }}{{ 2.1 | round(0, 'ceil') }}{{ 1234 | round(-2) }}{{ 5 | round }}",
    "{{ '42' | int }}{{ '4.7' | int }}{{ 'x' | int }}{{ 'x' | int(5) }}{{ '0x1f' | int(0, 16) }}{{ '1.5' | float }}{{ none | int }}",
    "{{ d | tojson }}{{ messages[2] | tojson(indent=4) }}{{ 'é' | tojson(ensure_ascii=true) }}{{ d | tojson(sort_keys=true, separators=(',', ':')) }}",
    "{{ messages | tojson }}", "{{ missing | tojson }}", "{{ 1 | tojson(indent=500) }}", "{% set x = namespace(a=1) %}{{ x['a'] }}",
    "{% set messages = messages[1:] %}{{ messages | length }}", "{{ text | wordcount }}{{ '<a>b</a>' | striptags }}{{ 'a b' | urlencode }}",
    "{% if messages[0].role == 'system' %}{{ messages[0].content.strip() }}{% endif %}", "{{ messages[2].tool_calls[0].arguments.items() | list }}",
    "{% for c in messages[2].tool_calls %}{{ c.name }}({% for k, v in c.arguments.items() %}{{ k }}={{ v }}{{ ', ' if not loop.last }}{% endfor %}){% endfor %}",
]

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--check", type=int, default=0)
parser.add_argument("--seed", type=int, default=1)
arguments = parser.parse_args()
r = random.Random(arguments.seed)
if arguments.check:
    sources = ["{{ " + expression(r, 3) + " }}" for _ in range(arguments.check)]
else:
    sources = BLOCKS + ["{{ " + form + " }}" for form in FORMATS]
    sources += ["{{ " + value + "|" + name + " }}" for name in FILTERS for value in r.sample(VALUES, 3)]
    sources += ["{{ " + value + " is " + name + " }}" for name in TESTS for value in r.sample(VALUES, 3)]
    sources += ["{{ (" + value + ")" + call + " }}" for call in CALLS for value in ["text", *r.sample(VALUES, 2)]]
    sources += ["{{ " + expression(r) + " }}" for _ in range(300)]
# What jinja2 folds before it renders has other values than what it renders: slices of what cannot be sliced.
folded = lambda case: case["text"] == "" and re.search(r"\)\[[-\d]*:", case["template"])
SKIP = ["<generator", "object at 0x", "<built-in", "dict_items", "dict_keys", "dict_values", "range(", "<bound method"]
cases = [{"template": source, "text": rendered(source)} for source in dict.fromkeys(sources)]
cases = [case for case in cases if case["text"] is None or not any(s in case["text"] for s in SKIP) and len(case["text"]) < 5000]
cases = [case for case in cases if not folded(case)]
lines = ",\n  ".join(json.dumps(case, ensure_ascii=False) for case in cases)
file = '{\n "variables": ' + json.dumps(VARIABLES, ensure_ascii=False) + ',\n "cases": [\n  ' + lines + "\n ]\n}\n"
if arguments.check:
    sys.stdout.write(file)
else:
    pathlib.Path(__file__).with_name("expressions.json").write_text(file)
    print(len(cases), "cases")
