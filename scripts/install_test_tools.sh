#!/bin/sh
# Install the tools the tests run, unless they are there:
#   chromium                                          renders the HTML reports
#   a narrow, a common and a wide font                the reports must not depend on the reader's fonts
#   iproute2                                          network namespaces with links of a chosen rate
#   PostgreSQL                                        the store's tests start servers of their own
#   the packages of Slurm, unpacked under build/      runs the launch files
# Needs root on Debian or a derivative. Elsewhere one line says what is missing, and the tests that need it say so.
set -eu

has_command() { for name in "$@"; do if command -v "$name" >/dev/null 2>&1; then return 0; fi; done; return 1; }
has_font() {
    for folder in /usr/share/fonts /usr/local/share/fonts "${HOME:-/root}/.fonts" "${HOME:-/root}/.local/share/fonts"; do
        if [ -d "$folder" ] && [ -n "$(find "$folder" -name "$1" | head -n 1)" ]; then return 0; fi
    done
    return 1
}
has_postgres() { for server in /usr/lib/postgresql/*/bin/postgres; do [ -x "$server" ] && return 0; done; return 1; }

missing=""
has_command chromium chromium-browser google-chrome chrome || missing="$missing chromium"
has_font 'YanoneKaffeesatz*' || missing="$missing fonts-yanone-kaffeesatz"
has_font 'LiberationSans-Regular.*' || missing="$missing fonts-liberation"
has_font 'DejaVuSans.*' || missing="$missing fonts-dejavu-core"
{ has_command ip && has_command tc; } || missing="$missing iproute2"
has_postgres || missing="$missing postgresql"
missing="${missing# }"

if ! has_command apt-get || [ "$(id -u)" -ne 0 ]; then
    if [ -n "$missing" ]; then
        echo "test tools: not installed, as this needs root on Debian: apt-get install --no-install-recommends $missing" >&2
    fi
    exit 0
fi

if [ -n "$missing" ]; then
    echo "test tools: installing $missing"
    log="$(mktemp)"
    install() {
        case " $missing " in *" postgresql "*) without_main_cluster || return 1 ;; esac
        # The names are separate words.
        # shellcheck disable=SC2086
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing >>"$log" 2>&1
    }
    # Debian's package otherwise creates a database cluster and starts it with the machine.
    without_main_cluster() {
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends postgresql-common >>"$log" 2>&1 &&
            sed -i 's/^#* *create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
    }
    # The lists of packages may be missing or too old to be of use.
    if ! install && ! { apt-get update >>"$log" 2>&1 && install; }; then
        tail -n 5 "$log" >&2
        echo "test tools: apt-get could not install $missing (log: $log)" >&2
        exit 0
    fi
    rm -f "$log"
fi
bash "$(dirname "$0")/slurm_for_tests.sh" --fetch || echo "test tools: Slurm's packages could not be downloaded" >&2
