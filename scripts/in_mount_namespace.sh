#!/bin/sh
# Run a command; in a chroot, in a mount namespace of its own whose root is a mount point:
#
#   scripts/in_mount_namespace.sh pytest -n 2
#
# `ip netns exec` and `unshare --mount` change the propagation of /, which fails in a chroot whose root is a plain
# folder. The tests that need them run there too if / is bound to a mount point first. Without root or the
# right to make namespaces, or where / is a mount point, the command runs as it is.
set -eu

if [ "$(id -u)" -ne 0 ] || mountpoint -q / || ! mountpoint -q /dev ||
    ! unshare --mount --propagation unchanged true 2>/dev/null; then
    exec "$@"
fi
# /dev/shm lies on a mount that can be made private, so that no mount becomes visible outside.
exec unshare --mount --propagation unchanged sh -euc '
    mount --make-rprivate /dev
    mount -t tmpfs none /dev/shm
    mkdir /dev/shm/root
    mount --rbind / /dev/shm/root
    mount --make-rprivate /dev/shm/root
    exec chroot /dev/shm/root sh -euc '\''umount /dev/shm; cd "$0"; exec "$@"'\'' "$PWD" "$@"
' sh "$@"
