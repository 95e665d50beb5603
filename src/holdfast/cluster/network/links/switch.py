"""The process that delays what goes over slowed links: packets come, wait, and go back unchanged.

In the router's namespace a rule marks packets of slowed links, and marked ones are routed to one
end of a veth pair, whose other end is read and written here, as whole frames. So nothing of other
links passes through, and no device of its own is needed. Frames come with the kernel's virtio
header, which is given back as it was: segments that the kernel keeps together stay so.

    standard input   {"links": {"10.1.0.1 10.1.0.2": "slow=..."}}, all that are slowed, a line each
    standard output  "ready", and {"dropped": n} for each line
"""

from __future__ import annotations

import gc
import heapq
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from typing import Final

from holdfast.cluster.network import link_table
from holdfast.cluster.network.delays import Room, SlowLink
from holdfast.cluster.network.links.link_rules import SWITCH_DEVICE, SWITCH_MARK

FAR: Final = "slow-far"
_SOL_PACKET, _PACKET_STATISTICS, _PACKET_VNET_HDR, _ETH_P_IP = 263, 6, 15, 0x0800
_FRAME_BYTES_MAX: Final = 10 + 14 + (64 << 10)
_SOURCE: Final = 10 + 14 + 12  # of an IPv4 header, behind virtio's and Ethernet's
_BATCH: Final = 64  # read before those that are due are sent
_BUFFER_BYTES: Final = 32 << 20
# Without ARP a device writes its own address as the target, so a frame can be sent back as it is.
DEVICES: Final = f"""\
link add {SWITCH_DEVICE} type veth peer name {FAR}
link set dev {SWITCH_DEVICE} arp off txqueuelen 10000
link set dev {FAR} arp off txqueuelen 10000
link set dev {SWITCH_DEVICE} up
link set dev {FAR} up
route add default dev {SWITCH_DEVICE} table {SWITCH_MARK}
rule add fwmark {SWITCH_MARK} lookup {SWITCH_MARK}
"""


class Switch:
    """Frames that wait, the earliest first."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._room = Room()  # also of what waits of links that are whole again, or slow otherwise
        self._links: dict[bytes, SlowLink] = {}
        self._waiting: list[tuple[int, int, SlowLink | None, bytes]] = []
        self._sequence = 0
        self._dropped = 0  # of links that are slow no more, and what never came to its link

    def configure(self, texts: dict[str, str]) -> int:
        """Slow these links and no others; return how many packets found no room until now."""
        links = {}
        for names, text in texts.items():
            key = b"".join(socket.inet_aton(address) for address in names.split())
            how = link_table.from_text(text).slow
            assert how is not None, "a link that is not slowed"
            link = self._links.get(key)
            if link is None or link.how != how:
                self._dropped += 0 if link is None else link.dropped
                link = SlowLink(how, f"{self._seed} {names}", self._room)
            links[key] = link
        gone = self._links.keys() - links.keys()
        self._dropped += sum(self._links[key].dropped for key in gone)
        self._links = links
        return self._dropped + sum(link.dropped for link in links.values())

    def count_dropped(self, count: int) -> None:
        """Take in that so many packets were dropped before they came to wait, or as they left."""
        self._dropped += count

    def take(self, frame: bytes, now_us: int) -> None:
        """Take in a frame. One of a link that is whole again meanwhile goes on at once."""
        link = self._links.get(frame[_SOURCE : _SOURCE + 8])
        leaves = now_us if link is None else link.admit(now_us, len(frame))
        if leaves is not None:
            self._sequence += 1
            heapq.heappush(self._waiting, (leaves, self._sequence, link, frame))

    def due(self, now_us: int) -> bytes | None:
        """Return the next frame that is due."""
        if not self._waiting or self._waiting[0][0] > now_us:
            return None
        _, _, link, frame = heapq.heappop(self._waiting)
        if link is not None:
            link.left(len(frame))
        return frame

    def wait_s(self, now_us: int) -> float | None:
        """Return how long nothing is due; None: until something comes."""
        return max(0, self._waiting[0][0] - now_us) / 1e6 if self._waiting else None


def open_far_end() -> socket.socket:
    """Return the socket that reads and writes the switch's end of the veth pair."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as opened:
        opened.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            opened.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
        opened.setblocking(False)
        opened.bind((FAR, _ETH_P_IP))  # of this protocol only what comes in is shown
        return socket.socket(fileno=opened.detach())


def make_devices(ip: str) -> None:
    """Make the veth pair and the way to it, unless an earlier switch did."""
    if FAR in {name for _, name in socket.if_nameindex()}:
        return
    subprocess.run(  # noqa: S603 - ip, and what stands above
        [ip, "-batch", "-"], input=DEVICES, text=True, check=True, capture_output=True
    )


def run(switch: Switch, far: socket.socket) -> None:
    """Carry frames until standard input ends."""
    orders = b""
    while True:
        wait_s = switch.wait_s(_now_us())
        readable, _, _ = select.select([far.fileno(), 0], [], [], wait_s)
        if 0 in readable:
            part = os.read(0, 1 << 16)
            if not part:
                return
            *lines, orders = (orders + part).split(b"\n")
            for line in lines:
                switch.count_dropped(_take_unread(far))
                dropped = switch.configure(json.loads(line)["links"])
                _say(json.dumps({"dropped": dropped}))
        if far.fileno() in readable:
            _read(switch, far)
        _send(switch, far)


def _take_unread(far: socket.socket) -> int:
    """Return how many frames the kernel dropped since it was asked last, for want of a reader."""
    _, dropped = struct.unpack("II", far.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
    return int(dropped)


def _read(switch: Switch, far: socket.socket) -> None:
    now_us = _now_us()
    for _ in range(_BATCH):
        try:
            frame = far.recv(_FRAME_BYTES_MAX)
        except BlockingIOError:
            return
        if len(frame) >= _SOURCE + 8:
            switch.take(frame, now_us)


def _send(switch: Switch, far: socket.socket) -> None:
    now_us = _now_us()
    while (frame := switch.due(now_us)) is not None:
        try:
            far.send(frame)
        except OSError:  # no room, or a frame that the kernel does not take back: it is lost
            switch.count_dropped(1)


def _now_us() -> int:
    return time.monotonic_ns() // 1000


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    ip, seed = sys.argv[1:]
    try:
        make_devices(ip)
        far = open_far_end()
    except (OSError, subprocess.CalledProcessError) as error:
        said = error.stderr if isinstance(error, subprocess.CalledProcessError) else error
        _say(f"error: {said}")
        return 1
    gc.freeze()
    _say("ready")
    run(Switch(seed), far)
    return 0


if __name__ == "__main__":
    sys.exit(main())
