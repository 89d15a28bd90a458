# Two hosts in network namespaces, connected by a cable of their own; run by hosts.rs within `unshare --net --uts --mount`.
#
# gpu01 is this namespace, gpu02 that of a process that waits; both end with this script. Its argument is a script that
# runs on gpu01, where `on COMMAND` runs a command on gpu02, and `./agent HOST COMMAND` one on any of them.
set -e
hostname gpu01
ip link set lo up
unshare --net --uts sleep 600 &
gpu02=$!
trap 'kill $gpu02' EXIT
until [ "$(readlink /proc/$gpu02/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
until [ "$(readlink /proc/$gpu02/ns/uts)" != "$(readlink /proc/self/ns/uts)" ]; do sleep 0.01; done
on() { nsenter --target "$gpu02" --net --uts "$@"; }
on hostname gpu02
ip link add near type veth peer name far netns "$gpu02"
ip address add 10.77.0.1/24 dev near
# An interface of gpu01 at which nobody should listen.
ip address add 10.77.1.1/24 dev near
ip link set near up
on ip link set lo up
on ip address add 10.77.0.2/24 dev far
on ip address add 10.77.1.2/24 dev far
on ip link set far up
printf '127.0.0.1 localhost\n10.77.0.1 gpu01\n10.77.0.2 gpu02\n' > hosts
mount --bind hosts /etc/hosts
cat > agent <<END
#!/bin/sh
host=\$1
shift
[ "\$host" = gpu01 ] || exec nsenter --target $gpu02 --net --uts sh -c "\$*"
exec sh -c "\$*"
END
chmod +x agent
. "$1"
