"""Decodes a `.pftrace` file by the descriptors of Perfetto's own Python package, and checks what Perfetto needs of it.

    aorta exec FILE --backend sim --ranks 2 --trace run.pftrace
    python3 benches/pages/packets.py run.pftrace...

Needs the package `perfetto` of PyPI. Fails if a field is unknown to the descriptors, an event's track has no description, a
slice does not end, events are not in the order of time, or an arrow has one end only.
"""

import collections
import sys

from google.protobuf import unknown_fields
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto


def unknown(message):
    """Number of fields of a message, and of messages in it, that the descriptors do not have."""
    count = len(unknown_fields.UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            count += sum(unknown(one) for one in (value if field.is_repeated else [value]))
    return count


def check(path):
    trace = proto.Trace()
    with open(path, "rb") as file:
        data = file.read()
    trace.ParseFromString(data)
    assert unknown(trace) == 0, "fields that the descriptors do not have"
    assert len(trace.SerializeToString()) == len(data)
    tracks, kinds, depth, arrows, last = {}, collections.Counter(), collections.Counter(), collections.defaultdict(list), 0
    for packet in trace.packet:
        assert packet.trusted_packet_sequence_id
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid not in tracks and (not track.parent_uuid or track.parent_uuid in tracks)
            tracks[track.uuid] = track
            continue
        event = packet.track_event
        assert packet.timestamp >= last and event.track_uuid in tracks
        last = packet.timestamp
        kinds[proto.TrackEvent.Type.Name(event.type)] += 1
        assert (event.type == proto.TrackEvent.TYPE_COUNTER) == tracks[event.track_uuid].HasField("counter")
        depth[event.track_uuid] += {proto.TrackEvent.TYPE_SLICE_BEGIN: 1, proto.TrackEvent.TYPE_SLICE_END: -1}.get(event.type, 0)
        # A moment of an arrow between ranks lies within an operation.
        assert 0 <= depth[event.track_uuid] <= 2
        for flow in event.flow_ids:
            arrows[flow].append("begin")
        for flow in event.terminating_flow_ids:
            arrows[flow].append("end")
    assert not any(depth.values()) and all(ends == ["begin", "end"] for ends in arrows.values())
    threads = [track.thread for track in tracks.values() if track.HasField("thread")]
    assert len({thread.tid for thread in threads}) == len(threads)
    path_tracks = sum(thread.thread_name == "critical path" for thread in threads)
    print(f"{path}: {len(tracks)} tracks, {path_tracks} of critical paths; {len(arrows)} arrows; {dict(kinds)}")


for path in sys.argv[1:]:
    check(path)
