"""The names of the files of kernels, with who writes each and who reads it.

In a runtime directory, written by hosts:

    names/<slug>       a copy of the record of a name    template-<digest>      the socket of a template
    locks/<slug>       held while a name changes         template-<digest>.log  what it wrote to stdout and stderr

In a kernel's own directory:

    file               written by                        read by
    connection.json    host: the record                  hosts, who believe it if it is signed
    socket             host binds it                     hosts connect, the kernel inherits it
    runner             host binds it                     hosts connect, to the runner of a guarded kernel
    keeper             host binds it                     hosts connect, to the kernel's keeper, for copies
    checkpoint-<n>     host: about a frozen copy         hosts, who believe it if it is signed
    checkpoint-last    host: the last number given       hosts, the keeper
    checkpoint-evicted keeper: those it has dropped      hosts, for messages
    state              host makes it, the kernel maps it hosts, who know that the kernel can write anything there
    log                host opens it for the kernel      people
    cells-0, cells-1   host opens them for the kernel    hosts, who know that the kernel can write anything there
    death.json         keeper: how the process ended     hosts
    kept.json          keeper in srt: which srt it is    the parent of that srt, when srt has ended; hosts
    ending.json        host: why it ends the process     hosts
    reported-<pid>-…   host: the death was reported      hosts, who believe it if it is signed, as the one above
    profile/           the cell, with %store             the cell

and for a Jupyter kernel:

    jupyter.json       host: Jupyter's connection file   the kernel, Jupyter's clients
    link.json          host: how to reach it             hosts
    queue              hosts lock it                     hosts
    zmq-<n>            the kernel binds them             hosts connect
"""

from __future__ import annotations

NAMES, LOCKS = "names", "locks"
TEMPLATE = "template-"

# The prefix of srt's directories for sockets. They are in /tmp, because sockets need short paths.
SRT_PLACE = "kernelbox-srt-"

# How lines of a template's log begin: before each import of a module in KERNELBOX_PRELOAD, and after the last.
IMPORTING, WARM = "importing", "imported all"

# What generated packages import. The template of a home with tool servers imports it in advance.
TOOLS = ("kernelbox.guest.tools", "kernelbox.guest.discovery")

# How a kernel's error begins when the system does not allow the sandbox or the guard.
UNARMED = "the sandbox cannot be armed: "
UNGUARDED = "the guard of require_shell_escape cannot be armed: "

# Where pip installs packages of a sandboxed kernel, in the kernel's own directory.
PACKAGES = "packages"

# The name of the process that makes sandboxes.
MAKER = "kernelbox-maker"

RECORD = "connection.json"
SOCKET = "socket"
RUNNER = "runner"
DOOR = "keeper"
CHECKPOINT = "checkpoint-"
LAST_CHECKPOINT = f"{CHECKPOINT}last"
EVICTED = f"{CHECKPOINT}evicted"
STATE = "state"
LOG = "log"
CELLS = ("cells-0", "cells-1")
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
    """Tells whether a text can be the id of a kernel, which is also the name of its directory."""
    return len(text) == 32 and not text.strip("0123456789abcdef")
