"""The names of the files of kernels, in one place: who writes each, and who reads it.

In a runtime directory, written by hosts:

    names/<slug>       a copy of the record of a name    template-<digest>      the socket of a template
    locks/<slug>       held while a name changes         template-<digest>.log  what it wrote to stdout and stderr

In a kernel's own directory:

    file               written by                        read by
    connection.json    host: the record                  hosts, who believe it if it is signed
    socket             host binds it                     hosts connect, the kernel inherits it
    runner             host binds it                     hosts connect, to the runner of a guarded kernel
    state              host makes it, the kernel maps it hosts, who take it for what the kernel says of itself
    log                host opens it for the kernel      people
    death.json         keeper: how the process ended     hosts
    kept.json          keeper in srt: which srt it is    the parent of that srt, when srt has ended; hosts
    ending.json        host: why it ends the process     hosts
    reported-<pid>-…   host: the death has been told     hosts, who believe it if it is signed, as the one above
    profile/           the cell, with %store             the cell

and, of a Jupyter kernel:

    jupyter.json       host: Jupyter's connection file   the kernel, Jupyter's clients
    link.json          host: how to reach it             hosts
    queue              hosts lock it                     hosts
    zmq-<n>            the kernel binds them             hosts connect
"""

from __future__ import annotations

NAMES, LOCKS = "names", "locks"
TEMPLATE = "template-"

# How the directories begin that srt keeps its sockets in: they are in /tmp, because sockets need short paths.
SRT_PLACE = "kernelbox-srt-"

# How lines of a template's log begin: before it imports a module of KERNELBOX_PRELOAD, and after the last.
IMPORTING, WARM = "importing", "imported all"

# What generated packages import; a template imports it beforehand in a home that has tool servers.
TOOLS = ("kernelbox.guest.tools", "kernelbox.guest.discovery")

# How the reasons begin that a kernel gives when the system does not let it be confined, or guarded.
UNARMED = "the sandbox cannot be armed: "
UNGUARDED = "the guard of require_shell_escape cannot be armed: "

# Where a sandboxed kernel finds what pip has installed for it, in the directory that is its own.
PACKAGES = "packages"

# What the system calls the process that makes sandboxes.
MAKER = "kernelbox-maker"

RECORD = "connection.json"
SOCKET = "socket"
RUNNER = "runner"
STATE = "state"
LOG = "log"
DEATH = "death.json"
KEPT = "kept.json"
INTENT = "ending.json"
REPORTED = "reported-"
PROFILE = "profile"

JUPYTER = "jupyter.json"
LINK = "link.json"
QUEUE = "queue"
ZMQ = "zmq"


def is_kernel_id(text: str) -> bool:
    """Tells whether a text can be the id of a kernel, which its directory is called by."""
    return len(text) == 32 and not text.strip("0123456789abcdef")
