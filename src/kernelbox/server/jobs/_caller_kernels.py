"""The kernels that one caller sees: all of them, or those whose names begin with the caller's own.

Every route goes through here, so that no route can forget whose kernel it deals with. What a caller with a name calls
`x` is the kernel `NAME:x` of the home, for every other face.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from kernelbox.base._errors import InvalidInput, KernelNotFound
from kernelbox.base._text import MAX_NAME
from kernelbox.core._executor_values import Variable
from kernelbox.core._kernel_handle import KernelHandle
from kernelbox.core._options import KernelOptions
from kernelbox.host.store._record import KernelRecord
from kernelbox.server.http._callers import Caller
from kernelbox.server.http._failures import RequestRefused
from kernelbox.shells._asyncio_kernels import AsyncKernels
from kernelbox.wire._layout import is_kernel_id

T = TypeVar("T")


_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class CallerKernels:
    """Finds, opens, asks, interrupts and ends the kernels of one caller, who does not see those of others."""

    def __init__(self, kernels: AsyncKernels, caller: Caller, noted: dict[str, Any] | None = None) -> None:
        """The id of the kernel in use is written into `noted`."""
        self._kernels = kernels
        self._caller = caller
        self._noted = {} if noted is None else noted

    def shown(self, record: KernelRecord) -> KernelRecord:
        """Returns a record with the names that the caller knows the kernel by."""
        prefix = self._caller.prefix
        if not prefix:
            return record
        shown = copy.copy(record)
        shown.name = record.name.removeprefix(prefix)
        if record.session_name is not None:
            shown.session_name = record.session_name.removeprefix(prefix)
        return shown

    async def all(self) -> list[KernelRecord]:
        """Returns the kernels, oldest first."""
        return [record for record in await self._kernels.all() if self._owns(record)]

    async def get(self, key: str) -> KernelRecord:
        """Returns the record of an id, name or session name; raises KernelNotFound."""
        record = None
        with contextlib.suppress(InvalidInput):
            record = await self._kernels.find(self._full(key))
        if record is None:
            return await self.get(_id_of(key))
        return self._require(record, key)

    async def kernel(self, key: str) -> KernelHandle:
        """Returns a handle to an existing kernel, alive or dead; raises KernelNotFound."""
        try:
            kernel = await self._kernels.kernel(self._full(key))
        except (KernelNotFound, InvalidInput):
            return await self.kernel(_id_of(key))
        self._require(kernel.record, key)
        return kernel

    async def create(self, name: str | None, wanted: KernelOptions) -> KernelRecord:
        """Opens a kernel under a name that no live kernel has, a new one if none is given; raises KernelExists."""
        named, session = self._name(name), self._name(wanted.session_name)
        if named is None and session is None:
            named = self._name(self._kernels.new_name())
        return await self._kernels.create(named, dataclasses.replace(wanted, session_name=session))

    async def retag(self, key: str, changes: Mapping[str, str | None]) -> KernelRecord:
        """Sets tags of a kernel, and removes those that are None."""
        return await self._kernels.retag(await self._id(key), changes)

    async def open(self, name: str, wanted: KernelOptions) -> KernelRecord:
        """Returns the live kernel of a name; opens one, as it is wanted, if there is none."""
        return await self._kernels.open(f"{self._caller.prefix}{name}", wanted)

    def alone(self, about: str) -> AbstractAsyncContextManager[None]:
        """Lets one request of the caller at a time, at all servers on the home, do what this is about."""
        return self._kernels.alone(f"{self._caller.prefix}{about}")

    async def use(self, name: str) -> KernelHandle:
        """Returns the kernel for a cell that is sent to a name; one that died since it was last used is dead, once.

        A caller that may not open kernels gets an existing one; raises RequestRefused if there is none.
        """
        if "manage" not in self._caller.scopes:
            try:
                return await self.kernel(name)
            except KernelNotFound as exc:
                sentence = f"there is no kernel {name!r:.100}, and this token lacks the scope 'manage', which opens one"
                raise RequestRefused(403, "scope_missing", sentence) from exc
        kernel = await self._kernels.use(f"{self._caller.prefix}{name}")
        self._noted["kernel_id"] = kernel.record.kernel_id
        return kernel

    async def ask(self, key: str, what: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Asks a kernel something between cells; raises KernelBusy if a cell runs in it."""
        return await self._kernels.ask(await self._id(key), what, args)

    async def variables(self, key: str) -> list[Variable]:
        """Returns what lives in a kernel."""
        return await self._kernels.variables(await self._id(key))

    async def look_back(self, key: str, read: Callable[[KernelHandle], T]) -> T:
        """Calls a function in a thread with a handle to a kernel, alive or dead: to read its history."""
        return await self._kernels.look_back(await self._id(key), read)

    async def interrupt(self, key: str) -> bool:
        """Interrupts what holds a kernel; returns whether anything did."""
        return await self._kernels.interrupt(await self._id(key))

    async def restart(self, key: str) -> KernelRecord:
        """Starts a kernel's process anew under the same name and id."""
        return await self._kernels.restart(await self._id(key))

    async def destroy(self, key: str) -> bool:
        """Ends a kernel, its children and its files; returns whether there was one."""
        return await self._kernels.destroy(await self._id(key))

    async def wipe(self) -> list[str]:
        """Destroys all kernels of the caller; returns their ids."""
        if not self._caller.prefix:
            return await self._kernels.wipe()
        records = await self.all()
        return [record.kernel_id for record in records if await self._kernels.destroy(record.kernel_id)]

    async def _id(self, key: str) -> str:
        return (await self.kernel(key)).record.kernel_id

    def _full(self, key: str) -> str:
        return key if is_kernel_id(key) else f"{self._caller.prefix}{key}"

    def _name(self, name: str | None) -> str | None:
        return None if name is None else f"{self._caller.prefix}{name}"

    def _owns(self, record: KernelRecord) -> bool:
        return record.name.startswith(self._caller.prefix)

    def _require(self, record: KernelRecord, key: str) -> KernelRecord:
        if not self._owns(record):
            raise KernelNotFound(key[:MAX_NAME])
        self._noted["kernel_id"] = record.kernel_id
        return record


def _id_of(key: str) -> str:
    """Returns the id that Jupyter writes with dashes; raises KernelNotFound for anything that is not an id."""
    if not _UUID.fullmatch(key):
        raise KernelNotFound(key[:MAX_NAME]) from None  # under the name that the caller gave, even an impossible one
    return key.replace("-", "")
