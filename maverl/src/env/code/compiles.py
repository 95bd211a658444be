# Reads the Python that tasks bring and says which of it can never run. Nothing of it is run here.
import ast
import builtins
import importlib.util
import json
import sys
import warnings


def parsed(source, kind):
    try:
        return compile(source, kind, "exec", ast.PyCF_ONLY_AST), source
    except SyntaxError:
        if kind != "setup":
            raise
    # It may be the beginning of a function.
    source += "\n    pass\n"
    return compile(source, kind, "exec", ast.PyCF_ONLY_AST), source


def defines(tree, name):
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return True
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            return True
        if isinstance(node, ast.alias) and name in (node.name, node.asname, "*"):
            return True
    return False


def modules(tree):
    """The modules that are imported whatever happens."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module


def there(module):
    try:
        return importlib.util.find_spec(module.split(".")[0]) is not None
    except ValueError:
        return True


def trouble(source, kind):
    try:
        tree, source = parsed(source, kind)
        compile(source, kind, "exec")
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    for module in modules(tree):
        if not there(module):
            return f"there is no module `{module}` in the sandbox"
    if kind == "test" and not defines(tree, "check"):
        return "`test` defines no function `check`"
    return None


def names(source):
    """The names that some code makes, anywhere in it, and those that it reads."""
    made, read = set(), []
    for node in ast.walk(parsed(source, "setup")[0]):
        if isinstance(node, ast.Name):
            read.append(node.id) if isinstance(node.ctx, ast.Load) else made.add(node.id)
        elif isinstance(node, ast.alias):
            made.add((node.asname or node.name).split(".")[0])
        else:
            made.update(getattr(node, key, None) or "" for key in ("name", "arg", "rest") if type(getattr(node, key, None)) is str)
    return made, read


def unknown(texts, entry):
    """The first name in a task's texts that nothing defines; tests of one task share their names."""
    made, read = {*dir(builtins), entry, "candidate", "check"}, []
    for source in texts:
        more, reads = names(source)
        made |= more
        read += reads
    if "*" in made:
        return None
    return next((name for name in read if name not in made), None)


warnings.simplefilter("ignore")
tasks = {}
for text in json.load(sys.stdin):
    what = trouble(text["source"], text["kind"])
    if what:
        print(json.dumps([text["task"], what[:300], True]), flush=True)
    elif text["kind"] != "code":
        tasks.setdefault((text["task"], text["entry"]), []).append(text["source"])
for (task, entry), texts in tasks.items():
    name = unknown(texts, entry)
    if name:
        print(json.dumps([task, f"`{name[:100]}`", False]), flush=True)
