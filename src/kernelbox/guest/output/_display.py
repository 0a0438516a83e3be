"""How values become displays: IPython's publisher and display hook, bound to the outbox."""

from __future__ import annotations

import builtins as user_builtins
from typing import Any

from IPython.core import formatters
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.lib.pretty import _repr_pprint

from kernelbox.guest.output._json_value import json_value
from kernelbox.guest.output._outbox import Outbox
from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._bundle import build_display
from kernelbox.wire._messages import Clear
from kernelbox.wire._output_limit import bound

keep_builtins(globals())

# Types that have no representation but their text, unless a library registers one.
_PLAIN = frozenset({int, float, complex, bool, str, bytes, list, tuple, dict, set, frozenset, range})

# Of these, the types whose text is their repr, in one line; a float's format can be set.
_IN_ONE_LINE = frozenset({int, str, bytes})

# In bits. Python may refuse to show a longer one, and IPython shows that as an error.
_LONGEST_INT = 2000

# Characters of a value that `%history -o` shows.
_REMEMBERED = 1000


class DisplayFormatter(formatters.DisplayFormatter):
    """IPython's formatter, with a short way for plain values: IPython would ask ten formatters for nothing.

    It has the same name because `%config DisplayFormatter` goes by it.
    """

    def format(self, obj: object, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        if type(obj) in _PLAIN and include is None and exclude is None and not self._is_special(type(obj)):
            plain = self.formatters["text/plain"]
            text = repr(obj) if _is_repr(plain, obj) else plain(obj)
            return ({} if text is None else {"text/plain": text}), {}
        formatted: tuple[dict[str, Any], dict[str, Any]] = super().format(obj, include, exclude)
        return formatted

    def _is_special(self, cls: type) -> bool:
        """Tells whether a printer has been registered that would be asked for this type."""
        others = (self.mimebundle_formatter, self.ipython_display_formatter, *self.formatters.values())
        plain = self.formatters["text/plain"]
        for formatter in others:
            if formatter is not plain and (cls in (printers := formatter.type_printers) or object in printers):
                return True
        return False


def _is_repr(formatter: Any, obj: object) -> bool:
    """Tells whether IPython's text formatter would show this value as its repr."""
    cls = type(obj)
    if cls not in _IN_ONE_LINE or type(formatter) is not formatters.PlainTextFormatter or not formatter.enabled:
        return False
    by_type: dict[Any, Any] = formatter.type_printers
    by_id: dict[Any, Any] = formatter.singleton_printers
    if by_type.get(cls) is not _repr_pprint or by_id.get(id(obj), _repr_pprint) is not _repr_pprint:
        return False
    return not (isinstance(obj, int) and obj.bit_length() > _LONGEST_INT)


class Publisher(DisplayPublisher):
    """What `display()` and `clear_output()` call."""

    outbox: Outbox
    text_limit = 0

    def publish(  # type: ignore[override]  # `source`, deprecated there, is not taken
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        *,
        transient: dict[str, Any] | None = None,
        update: bool = False,
        **_: Any,
    ) -> None:
        self._validate_data(data, metadata)
        kind = "update_display_data" if update else "display_data"
        self.outbox.send(
            build_display(
                self.outbox.execution_id,
                kind,
                data,
                metadata,
                text_limit=self.text_limit,
                display_id=(transient or {}).get("display_id") or "",
            )
        )

    def clear_output(self, wait: bool = False) -> None:
        self.outbox.send(Clear(self.outbox.execution_id, bool(wait)))


class ResultHook(DisplayHook):
    """What the value of a cell's last expression is passed to."""

    outbox: Outbox
    text_limit = 0
    exec_result: Any = None  # not a trait: every cell sets it, twice
    _value = ""

    def quiet(self) -> bool:
        """Tells whether the cell ends in a semicolon; IPython tokenizes the cell to find out."""
        assert self.shell is not None
        cells = self.shell.history_manager.input_hist_parsed
        return bool(cells) and ";" in cells[-1] and bool(super().quiet())

    def compute_format_data(self, result: object) -> Any:
        self._value = json_value(result)
        return super().compute_format_data(result)

    def update_user_ns(self, result: Any) -> None:
        """Keeps the value in `_`, `_3` and `Out`, also if a cell has emptied the namespace.

        IPython does the same, and looks up the shell for each step.
        """
        shell: Any = self.shell
        names, hidden, count = shell.user_ns, shell.user_ns_hidden, self.prompt_count
        kept = names.setdefault("_oh", shell.history_manager.output_hist)
        if not self.cache_size or result is kept:
            return
        if self.do_full_cache and len(kept) >= self.cache_size:
            self.cull_cache()
        last = {"_": self._, "__": self.__, "___": self.___}
        # A value that the user has given to one of them, and a `_` of gettext's, stay.
        untouched = "_" not in vars(user_builtins) and all(
            names[name] is hidden.get(name, value) for name, value in last.items() if name in names
        )
        self._, self.__, self.___ = result, self._, self.__
        made = {"_": result, "__": self.__, "___": self.___} if untouched else {}
        if self.do_full_cache:
            made[f"_{count}"] = kept[count] = result
        names.update(made)
        hidden.update(made)

    def write_output_prompt(self) -> None:
        """Writes nothing: the number travels with the result."""

    def write_format_data(self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None) -> None:
        self.outbox.send(
            build_display(
                self.outbox.execution_id,
                "execute_result",
                format_dict,
                md_dict,
                text_limit=self.text_limit,
                execution_count=self.prompt_count,
                as_json=self._value,
            ),
            hold=True,  # the end of the cell follows at once
        )

    def log_output(self, format_dict: dict[str, Any]) -> None:
        """Remembers the text for `%history -o`, not the whole bundle: that would pin every picture shown."""
        if "text/plain" in format_dict:
            text = str(format_dict["text/plain"])
            assert self.shell is not None
            kept = text if len(text) <= _REMEMBERED else bound(text, _REMEMBERED)
            self.shell.history_manager.output_hist_reprs[self.prompt_count] = kept

    def finish_displayhook(self) -> None:
        self._is_active = False
