#!/bin/sh
# stacks-guest.sh SECONDS: runs the workloads of scripts/stacks.py in a guest. Prints `figure NAME
# VALUE`.
seconds=$1
mkdir -p /tmp
ifconfig lo 127.0.0.1 up
ifconfig eth0 10.0.1.2 netmask 255.255.255.0 up
ifconfig eth1 10.0.2.2 netmask 255.255.255.0 up
echo "guest: $(uname -r), clock $(cat /sys/devices/system/clocksource/clocksource0/current_clocksource)"

sysbench cpu --cpu-max-prime=20000 --threads=1 --time="$seconds" run |
    awk '/events per second/ { print "figure sysbench", $4 }'

# Under Xen, the disk has another name.
disk=/dev/vda
[ -b $disk ] || disk=/dev/xvda

# random NAME FIELD: prints fio's operations a second, which are whole numbers. fio's terse format
# has KiB and milliseconds of reads from field 6 on, and of writes from field 47 on.
random() {
    fio --name="$1" --rw="$1" --filename=$disk --direct=1 --bs=4k --ioengine=libaio --iodepth=4 \
        --numjobs=1 --randseed=1 --time_based --ramp_time=1 --runtime="$seconds" --minimal |
        awk -F';' -v at="$2" -v name="$1" \
            '$5 == 0 && $at { print "figure", name, $at / 4 / ($(at + 3) / 1000) }'
}
random randread 6
random randwrite 47

# stream NAME ADDRESS OPTION...: prints the rate of two TCP streams at their receiver, in Mbit/s.
stream() {
    name=$1
    address=$2
    shift 2
    iperf3 -c "$address" -P 2 -t "$seconds" -O 1 -i 0 -f k "$@" |
        awk -v name="$name" '/^\[SUM\].*receiver/ { print "figure", name, $6 / 1000 }'
}
for pairs in 1 2; do
    ping -c 1 -w 20 10.0.$pairs.1 > /dev/null
    stream "send-$pairs" 10.0.$pairs.1
    stream "receive-$pairs" 10.0.$pairs.1 -R
done
# Prints the number of queue pairs that sent something. Each pair has its own interrupt. An interrupt
# for sending is named like virtio0-output.1, or under Xen, where the device is vif-0, like vif0-q1-tx.
for device in eth0 eth1; do
    name=$(basename "$(readlink /sys/class/net/$device/device)" | tr -d -)
    awk -v device=$device -v queue="^$name-(output|q[0-9]+-tx)" '
        $NF ~ queue {
            count = 0
            for (cpu = 2; $cpu ~ /^[0-9]+$/; cpu++) count += $cpu
            pairs += count > 0
        }
        END { print "pairs", device, pairs + 0 }' /proc/interrupts
done
