#!/usr/bin/env bash
# Run a command beside a real Slurm of two nodes with two pretended GPUs each:
#
#   scripts/slurm_for_tests.sh sbatch job.sbatch
#   scripts/slurm_for_tests.sh --fetch               only download and unpack it, unless that was done
#
# Needs root on Debian. Nothing is installed: Debian's packages (3.5 MB) are unpacked once under build/slurm.
# Munge, the controller and the nodes live in namespaces of their own, so they end with the command, and no
# port is open to anyone.
set -euo pipefail

packages="$(cd "$(dirname "$0")/.." && pwd)/build/slurm"
unpacked="$packages/unpacked"
state="${SLURM_TEST_STATE:-}"
address=10.84.0.1 # not a loopback address: Slurm resolves no names on a machine that has no other

# Slurm, and the libraries it needs that this machine lacks.
download() {
  local slurm=(munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins) needed
  mapfile -t needed < <(apt-get install --simulate --no-install-recommends "${slurm[@]}" |
    sed -n 's/^Inst \([^ ]*\).*/\1/p')
  printf '%s\n' "${slurm[@]}" "${needed[@]}" | sort -u | xargs apt-get -qq download
}

fetch() {
  local partial
  partial="$(mktemp -d "$packages.XXXXXX")"
  (
    cd "$partial"
    # The lists of packages may be missing or too old to be of use.
    download >apt.log 2>&1 || { apt-get update && download; } >>apt.log 2>&1 || { cat apt.log >&2; exit 1; }
    for package in *.deb; do dpkg -x "$package" unpacked; done
    # A daemon finds its role from its own name, which Debian sets with alternatives.
    for daemon in slurmd slurmctld slurmstepd; do ln -s "$daemon-wlm" "unpacked/usr/sbin/$daemon"; done
    chmod 755 .
  )
  rm -rf "$packages"
  mv -T "$partial" "$packages"
}

configure() {
  cat >"$state/slurm.conf" <<CONF
ClusterName=tests
SlurmctldHost=node-a($address)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$state/munge.socket
PluginDir=$libraries/slurm-wlm
StateSaveLocation=$state/controller
SlurmctldPidFile=$state/slurmctld.pid
SlurmctldLogFile=$state/slurmctld.log
SlurmdSpoolDir=$state/%n
SlurmdPidFile=$state/%n.pid
SlurmdLogFile=$state/%n.log
SlurmdParameters=config_overrides
SlurmdTimeout=3
ReturnToService=2
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
MailProg=/bin/true
GresTypes=gpu
NodeName=node-a NodeAddr=$address Port=17001 CPUs=4 RealMemory=1000 Gres=gpu:a100:2
NodeName=node-b NodeAddr=$address Port=17002 CPUs=4 RealMemory=1000 Gres=gpu:a100:2
PartitionName=all Nodes=ALL Default=YES State=UP
CONF
  # Any character device may stand for a GPU.
  printf 'Name=gpu Type=a100 File=%s Flags=nvidia_gpu_env\n' /dev/null /dev/zero >"$state/gres.conf"
  printf '127.0.0.1 localhost\n%s node-a node-b\n' "$address" >"$state/hosts"
  : >"$state/resolv.conf"
  head -c 1024 /dev/urandom >"$state/munge.key"
  chmod 600 "$state/munge.key"
}

start() {
  mkdir -p "$state"/{controller,node-a,node-b}
  configure
  hostname node-a
  ip link set lo up
  ip address add "$address/32" dev lo
  mount --bind "$state/hosts" /etc/hosts
  if [ -e /etc/resolv.conf ]; then mount --bind "$state/resolv.conf" /etc/resolv.conf; fi
  munged --force --key-file="$state/munge.key" --socket="$state/munge.socket" --seed-file="$state/seed" \
    --pid-file="$state/munged.pid" --log-file="$state/munged.log"
  slurmctld -i
  for node in node-a node-b; do slurmd -N "$node" -d "$unpacked/usr/sbin/slurmstepd"; done
  for _ in $(seq 100); do
    if [ "$(sinfo --noheader --states=idle --format=%D 2>/dev/null)" = 2 ]; then return; fi
    sleep 0.1
  done
  tail -n 20 "$state"/*.log >&2
  echo "Slurm did not start" >&2
  exit 1
}

if [ -z "$state" ]; then
  mkdir -p "$(dirname "$packages")"
  [ -d "$unpacked" ] || fetch
  if [ "${1:-}" = --fetch ]; then exit; fi
  SLURM_TEST_STATE="$(mktemp -d)"
  export SLURM_TEST_STATE
  trap 'rm -rf "$SLURM_TEST_STATE"' EXIT
  unshare --uts --net --mount --pid --fork --kill-child --mount-proc bash "$0" "$@"
  exit
fi

libraries="$(echo "$unpacked"/usr/lib/*-linux-gnu)"
export LD_LIBRARY_PATH="$libraries:$libraries/slurm-wlm"
export PATH="$PATH:$unpacked/usr/bin:$unpacked/usr/sbin"
export SLURM_CONF="$state/slurm.conf"
start
"$@"
