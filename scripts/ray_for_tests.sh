#!/usr/bin/env bash
# Run a command beside a real Ray cluster: a head without GPUs and two nodes with two pretended GPUs each.
#
#   scripts/ray_for_tests.sh python -m pytest tests/backends/clusters/ray_cluster.py
#
# Needs root and namespaces: the cluster listens to no one else and ends with the command. The nodes are named
# node-0 and node-1; files node-N.pid in $RAY_TEST_STATE name the process of each node (its raylet).
# PYTHON names the Python that has Ray (default: .venv/bin/python of the project).
set -euo pipefail

root="$(cd "$(dirname "$0")/.." && pwd)"
python="${PYTHON:-$root/.venv/bin/python}"

if [ -z "${RAY_TEST_STATE:-}" ]; then
  RAY_TEST_STATE="$(mktemp -d)"
  export RAY_TEST_STATE
  trap 'rm -rf "$RAY_TEST_STATE"' EXIT
  unshare --net --mount --pid --fork --kill-child --mount-proc bash "$0" "$@"
  exit
fi

ip link set lo up
: >"$RAY_TEST_STATE/resolv.conf"
if [ -e /etc/resolv.conf ]; then mount --bind "$RAY_TEST_STATE/resolv.conf" /etc/resolv.conf; fi
mkdir -p /tmp/ray
mount -t tmpfs none /tmp/ray
exec "$python" "$root/scripts/ray_cluster_for_tests.py" "$@"
