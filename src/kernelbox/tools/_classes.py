"""Generated classes, read and written again: what is written is only what this module has a form for.

The generator's text is not trusted. It is parsed into the few things a class of values is made of, and anything else,
a call, an import, a name from elsewhere, is refused. So no text of a server's becomes code.
"""

from __future__ import annotations

import ast
import copy
import keyword
import re
import textwrap

from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Names that a class may use beside those of the other classes; all of them are imported by the module that we write.
TYPING_NAMES = frozenset({"Annotated", "Any", "Literal"})
PYDANTIC_NAMES = frozenset({"BaseModel", "ConfigDict", "Field", "RootModel"})
_BUILT_IN = frozenset({"str", "int", "float", "bool", "list", "dict"})

# What a field may say of its values.
_CONSTRAINTS = frozenset({"ge", "gt", "le", "lt", "min_length", "max_length", "pattern"})

# Names of the module that we write, which no class may take.
_RESERVED = frozenset({"annotations", "call", "call_async", "run", "run_async"})

_WIDTH = 118


class NotPlain(ValueError):
    """Raised when a text holds more than descriptions of values."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a class; `default` is None if it must be given. The texts are Python, made here."""

    name: str
    annotation: ast.expr
    default: str | None
    alias: str
    constraints: tuple[tuple[str, str], ...]
    description: str


@dataclass(frozen=True, slots=True)
class Class:
    """One class. `root` is what a class stands for that has no fields of its own."""

    name: str
    description: str
    fields: tuple[Field, ...]
    root: ast.expr | None
    extra: str


def read_classes(source: str) -> list[Class]:
    """Returns the classes of a generated module; raises NotPlain for anything that is not one."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        raise NotPlain(f"not Python: {exc}") from exc
    classes, names = [], {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    if names & (TYPING_NAMES | PYDANTIC_NAMES | _BUILT_IN | _RESERVED) or any(map(keyword.iskeyword, names)):
        raise NotPlain("a class has a name that is taken")
    for node in tree.body:
        match node:
            case ast.ClassDef(decorator_list=[], keywords=[]):
                classes.append(_read_class(node, names))
            case ast.ImportFrom() | ast.Import():
                pass  # we write our own
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="model_rebuild"), args=[], keywords=[])):
                pass  # pydantic does it at first use
            case _:
                raise NotPlain(f"a {type(node).__name__} in line {node.lineno}")
    return classes


def rename(classes: Iterable[Class], names: Mapping[str, str]) -> list[Class]:
    """Returns the classes with other names, where they are defined and where they are used."""
    if not names:
        return list(classes)

    def new(annotation: ast.expr) -> ast.expr:
        # Texts in annotations are values of Literal, never names: `_check_annotation` has seen to that.
        renamed = copy.deepcopy(annotation)
        for node in ast.walk(renamed):
            if isinstance(node, ast.Name):
                node.id = names.get(node.id, node.id)
        return renamed

    return [
        Class(
            names.get(made.name, made.name),
            made.description,
            tuple(
                Field(f.name, new(f.annotation), f.default, f.alias, f.constraints, f.description) for f in made.fields
            ),
            None if made.root is None else new(made.root),
            made.extra,
        )
        for made in classes
    ]


def write_class(made: Class) -> str:
    """Returns the text of a class."""
    if made.root is not None:
        lines = [f"class {made.name}(RootModel[{ast.unparse(made.root)}]):"]
        return "\n".join([*lines, *(docstring(made.description, "    ") or ["    pass"])])
    lines = [f"class {made.name}(BaseModel):", *docstring(made.description, "    ")]
    config = [f'extra="{made.extra}"'] if made.extra else []
    if any(field.alias for field in made.fields):
        config.append("populate_by_name=True")
    if any(field.name.startswith("model_") for field in made.fields):
        config.append("protected_namespaces=()")  # pydantic warns of names that are like its own
    if any(name == "pattern" for field in made.fields for name, _ in field.constraints):
        config.append('regex_engine="python-re"')
    if config:
        lines.append(f"    model_config = ConfigDict({', '.join(config)})")
    for field in made.fields:
        lines += [f"    {_write_field(field)}", *docstring(field.description, "    ")]
    return "\n".join(lines if len(lines) > 1 else [*lines, "    pass"])


def names_used(classes: Iterable[Class]) -> set[str]:
    """Returns the names that the text of classes takes from elsewhere."""
    text = "\n".join(map(write_class, classes))
    return {name for name in TYPING_NAMES | PYDANTIC_NAMES if re.search(rf"\b{name}\b", text)}


def docstring(text: str, indent: str) -> list[str]:
    """Returns the lines of a docstring with a text of a stranger's, none for no text."""
    text = text.strip()
    if not text:
        return []
    escaped = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    lines: list[str] = []
    for line in escaped.splitlines():
        lines += textwrap.wrap(line.strip(), _WIDTH - len(indent) - 6, break_long_words=False) or [""]
    closing = ' """' if lines[-1].endswith('"') else '"""'
    if lines[-1].endswith("\\") and len(lines[-1]) - len(lines[-1].rstrip("\\")) & 1:
        closing = ' """'  # wrapping cannot leave half an escape, but a reader should not have to prove it
    first, *rest = lines
    if not rest:
        return [f'{indent}"""{first}{closing}']
    body = [f"{indent}{line}".rstrip() for line in rest]
    return [f'{indent}"""{first}', *body[:-1], body[-1], f'{indent}"""']


def _write_field(field: Field) -> str:
    told = [f"{name}={value}" for name, value in field.constraints]
    if field.alias:
        told += [f"validation_alias={field.alias}", f"serialization_alias={field.alias}"]
    head = f"{field.name}: {ast.unparse(field.annotation)}"
    if told:
        default = [] if field.default is None else [f"default={field.default}"]
        return f"{head} = Field({', '.join([*default, *told])})"
    return head if field.default is None else f"{head} = {field.default}"


def _read_class(node: ast.ClassDef, names: set[str]) -> Class:
    root: ast.expr | None = None
    match node.bases:
        case [ast.Name(id="BaseModel")]:
            pass
        case [ast.Subscript(value=ast.Name(id="RootModel"), slice=inner)]:
            _check_annotation(inner, names)
            root = inner
        case _:
            raise NotPlain(f"class {node.name} is made of something else")
    fields: list[Field] = []
    description, extra = "", ""
    for statement in node.body:
        match statement:
            case ast.Expr(value=ast.Constant(value=str(text))):
                description = description or textwrap.dedent(text).strip()
            case ast.Assign(targets=[ast.Name(id="model_config")], value=ast.Call() as call):
                extra = _read_extra(call) or extra
            case ast.AnnAssign(target=ast.Name(id="root")) if root is not None:
                pass  # the class's base says the same
            case ast.AnnAssign(target=ast.Name(id=str(name)), annotation=annotation, value=value):
                _check_annotation(annotation, names)
                taken = name in names or name in _BUILT_IN or name in TYPING_NAMES or name in PYDANTIC_NAMES
                field = _read_field(name, annotation, value)
                fields.append(_give_way(field) if taken else field)
            case ast.Pass():
                pass
            case _:
                raise NotPlain(f"a {type(statement).__name__} in class {node.name}")
    return Class(node.name, description, tuple(fields), root, extra)


def _read_extra(call: ast.Call) -> str:
    for word in call.keywords:
        if word.arg == "extra" and isinstance(word.value, ast.Constant) and word.value.value in ("allow", "forbid"):
            return str(word.value.value)
    return ""


def _read_field(name: str, annotation: ast.expr, value: ast.expr | None) -> Field:
    if name.startswith("_") or not name.isidentifier():
        raise NotPlain(f"a field called {name}")
    match value:
        case None:
            return Field(name, annotation, None, "", (), "")
        case ast.Call(func=ast.Name(id="Field"), args=args, keywords=keywords) if len(args) <= 1:
            told = {word.arg or "": word.value for word in keywords}
            default = args[0] if args else told.get("default")
            required = default is None or (isinstance(default, ast.Constant) and default.value is ...)
            return Field(
                name,
                annotation,
                None if required or default is None else _literal(default),
                _literal(told["alias"]) if "alias" in told else "",
                tuple((key, _literal(told[key])) for key in sorted(told.keys() & _CONSTRAINTS)),
                _text(told.get("description")),
            )
        case _:
            return Field(name, annotation, _literal(value), "", (), "")


def _give_way(field: Field) -> Field:
    """Returns a field that does not hide, from the annotations beside it, the type whose name it has."""
    alias = field.alias or repr(field.name)
    return Field(f"{field.name}_", field.annotation, field.default, alias, field.constraints, field.description)


def _literal(node: ast.expr) -> str:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError) as exc:
        raise NotPlain("a value that is no literal") from exc
    if value is not None and type(value) not in (str, int, float, bool):
        raise NotPlain(f"a {type(value).__name__} for a value")
    return repr(value)


def _text(node: ast.expr | None) -> str:
    value = None if node is None else ast.literal_eval(_literal(node))
    return value if isinstance(value, str) else ""


def _check_annotation(node: ast.expr, names: set[str]) -> None:
    """Raises NotPlain unless an annotation is made of the names allowed, `|`, `[]` and the values of Literal."""
    match node:
        case ast.Name(id=name) if name in names or name in _BUILT_IN or name == "Any":
            return
        case ast.Constant(value=None):
            return
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            _check_annotation(left, names)
            _check_annotation(right, names)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=values):
            for value in values.elts if isinstance(values, ast.Tuple) else [values]:
                _literal(value)
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[inner, ast.Call() as call])):
            _check_annotation(inner, names)
            _check_constraints(call)
        case ast.Subscript(value=ast.Name(id="list" | "dict"), slice=inner):
            for part in inner.elts if isinstance(inner, ast.Tuple) else [inner]:
                _check_annotation(part, names)
        case _:
            raise NotPlain(f"a type {ast.unparse(node)[:100]}")


def _check_constraints(call: ast.Call) -> None:
    match call:
        case ast.Call(func=ast.Name(id="Field"), args=[], keywords=keywords):
            for word in keywords:
                if word.arg not in _CONSTRAINTS:
                    raise NotPlain(f"Field({word.arg}=)")
                _literal(word.value)
        case _:
            raise NotPlain("a call in a type")
