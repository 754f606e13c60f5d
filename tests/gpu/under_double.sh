#!/bin/sh
# under_double.sh LIBRARY_FOLDER KERNELS COMMAND...: runs a program for a device on the driver double, all its processes on one machine.
set -eu
LD_LIBRARY_PATH=$1${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
FAKECUDA_KERNELS=$2
FAKECUDA_MEMORY_MIB=${FAKECUDA_MEMORY_MIB:-20480}
FAKECUDA_DELAY_US=${FAKECUDA_DELAY_US:-0}
FAKECUDA_MACHINE=$(mktemp "${TMPDIR:-/tmp}/fakecuda-machine-XXXXXX")
export LD_LIBRARY_PATH FAKECUDA_KERNELS FAKECUDA_MEMORY_MIB FAKECUDA_DELAY_US FAKECUDA_MACHINE
shift 2
code=0
"$@" || code=$?
rm -f "$FAKECUDA_MACHINE"
exit $code
