#!/bin/sh
# Installs Debian's chromium, in which the HTML reports are tested, unless there is one already.
set -eu

for name in chromium chromium-browser google-chrome chrome; do
    if command -v "$name" >/dev/null 2>&1; then
        echo "browser: $(command -v "$name")"
        exit 0
    fi
done

if ! command -v apt-get >/dev/null 2>&1; then
    echo "no chromium found, and no apt-get to install it with: install chromium or Chrome yourself" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "no chromium found; run as root: apt-get install -y --no-install-recommends chromium" >&2
    exit 1
fi

install="apt-get install -y --no-install-recommends chromium"
# The lists of packages may be missing or too old to be of use.
DEBIAN_FRONTEND=noninteractive $install || {
    apt-get update
    DEBIAN_FRONTEND=noninteractive $install
}
