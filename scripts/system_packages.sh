#!/bin/sh
# Installs what the tests need from the operating system and Python packages cannot bring.
# Pairs of command:package, to which the arguments add; a pair whose command is on PATH costs nothing.
set -eu

needed="bash:bash curl:curl zsh:zsh fish:fish node:nodejs npm:npm $*"

missing=""
for pair in $needed; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || missing="$missing ${pair#*:}"
done
[ -n "$missing" ] || exit 0

echo "system packages missing:$missing"
if [ "$(id -u)" -ne 0 ]; then
    echo "install them with the system's package manager, or run this as root once, to run the tests that need them." >&2
    [ -z "${CI:-}" ] || exit 1
    exit 0
fi
# $missing is a list of words: it must split.
if command -v apt-get >/dev/null 2>&1; then
    DEBIAN_FRONTEND=noninteractive apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
elif command -v apk >/dev/null 2>&1; then
    apk add --no-cache $missing
elif command -v dnf >/dev/null 2>&1; then
    dnf install -y -q $missing
else
    echo "error: no package manager that this script knows (apt-get, apk, dnf); install them by hand." >&2
    exit 1
fi
