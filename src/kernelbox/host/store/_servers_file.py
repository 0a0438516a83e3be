"""The location of the file of tool servers, and whether it lists any for a home; `tools/_servers.py` does the rest."""

from __future__ import annotations

import os

from kernelbox.host.files._key import read_key
from kernelbox.host.files._place import Place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.base._config import KernelBoxConfig

SERVERS_FILE = "servers.json"

# The most bytes; enough for thousands of servers.
LARGEST = 4 * 1024 * 1024


def open_beside_key(config: KernelBoxConfig) -> Place:
    """Opens the directory of the file, which is the directory of the key."""
    directory = os.path.dirname(read_key(config.key_file).path)
    return Place.open(directory, private=False, setting="KERNELBOX_KEY_FILE")


def has_servers(config: KernelBoxConfig) -> bool:
    """Tells whether the file lists servers of a home. Its seal is not checked: only speed depends on the answer."""
    if config.store_backend == "memory":
        return False  # these kernels have no home and need no key
    try:
        with open_beside_key(config) as place:
            _, _, body = place.read(SERVERS_FILE, LARGEST).partition(b"\n")
        import json  # few users have the file

        return config.home in json.loads(body)
    except (OSError, ValueError, TypeError, RecursionError):
        return False
