"""Where the file of tool servers is, and whether it has any for a home; `tools/_servers.py` reads and writes it."""

from __future__ import annotations

import json
import os

from kernelbox.host.files._key import read_key
from kernelbox.host.files._place import Place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.base._config import KernelBoxConfig

SERVERS_FILE = "servers.json"

# Bytes: thousands of servers.
LARGEST = 4 * 1024 * 1024


def open_beside_key(config: KernelBoxConfig) -> Place:
    """Opens the directory that the file is in: the key's."""
    directory = os.path.dirname(read_key(config.key_file).path)
    return Place.open(directory, private=False, setting="KERNELBOX_KEY_FILE")


def has_servers(config: KernelBoxConfig) -> bool:
    """Tells whether the file names servers of a home. Its seal is not looked at: nothing but speed depends on it."""
    if config.store_backend == "memory":
        return False  # such kernels have no home, and need no key
    try:
        with open_beside_key(config) as place:
            _, _, body = place.read(SERVERS_FILE, LARGEST).partition(b"\n")
        return config.home in json.loads(body)
    except (OSError, ValueError, TypeError, RecursionError):
        return False
