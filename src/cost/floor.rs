//! Lower bound on the time that operations take on a device, however they overlap. A shorter time is a measurement
//! error.

use crate::config::Profile;
use crate::ops::{self, Category, Direction, Hold, Launch, Spec, Tensor};

/// Factor by which clocks can exceed the datasheet's peak: 1.98 GHz for an H200's 1.83.
const BOOST: f64 = 1.1;

/// Factor by which caches can exceed the profile. Operands may be in the fastest of several caches.
const CACHES: f64 = 2.0;
/// Factor by which links can exceed the profile.
const LINKS: f64 = 1.25;
/// Factor by which timers can exceed the profile.
const TIMERS: f64 = 1.1;

/// Lower bound for all of these operations together, in ns: the time of the busiest of the matrix units, the caches and
/// the two directions of the link to the host.
///
/// The arithmetic of generated kernels is not counted, since compilers may remove some of it. Neither is device memory,
/// since all operands may be in the cache.
pub fn floor<'a>(specs: impl IntoIterator<Item = &'a Spec>, profile: &Profile) -> f64 {
    let (mut matrix, mut cache, mut to_device, mut to_host, mut held) = (0.0, 0.0, 0.0, 0.0, 0.0f64);
    for spec in specs {
        let cost = spec.cost();
        if let Some(Hold::Block(time)) = cost.hold {
            held = held.max(time.0 as f64 / TIMERS);
        }
        // The CPU's peak rates are not known, and neither is work that data determines.
        if spec.threads.is_some() || ops::has_unknown_size(spec) {
            continue;
        }
        if let Some(arithmetic) = cost.matrix {
            matrix += cost.flops / (super::matrix_peak(arithmetic, profile) * BOOST) * 1e9;
        }
        match link_bytes(spec) {
            Some((Direction::HostToDevice, bytes)) => to_device += bytes / link(Direction::HostToDevice, profile),
            Some((Direction::DeviceToHost, bytes)) => to_host += bytes / link(Direction::DeviceToHost, profile),
            // Links between ranks are not bounded here.
            _ if between_ranks(spec) => {}
            _ => {
                let fast = profile.cache_bandwidth.value().max(profile.bandwidth.value());
                cache += (cost.read + cost.written).device as f64 / (fast * CACHES) * 1e9;
                let (read, written) = host_bytes(spec);
                to_device += read / link(Direction::HostToDevice, profile);
                to_host += written / link(Direction::DeviceToHost, profile);
            }
        }
    }
    [matrix, cache, to_device, to_host, held].into_iter().fold(0.0, f64::max)
}

/// Minimum bytes that a kernel reads from and writes to host memory; repeated reads may be cached.
pub(super) fn host_bytes(spec: &Spec) -> (f64, f64) {
    let cost = spec.cost();
    let distinct =
        |tensors: &[Tensor]| -> u64 { tensors.iter().filter(|tensor| tensor.space.in_host()).map(Tensor::bytes).sum() };
    (cost.read.host.min(distinct(&spec.inputs)) as f64, cost.written.host.min(distinct(&spec.outputs)) as f64)
}

fn between_ranks(spec: &Spec) -> bool {
    spec.operation.category() == Category::Collective || ops::crossing(spec).is_some()
}

/// Upper bound on a link's rate in bytes per ns.
fn link(direction: Direction, profile: &Profile) -> f64 {
    super::engines(direction, profile).link.value() * LINKS * 1e-9
}

/// Direction and bytes of a copy between the host and the device; `None` for other operations.
pub fn link_bytes(spec: &Spec) -> Option<(Direction, f64)> {
    let in_host = |tensor: &Tensor| tensor.space.in_host();
    if spec.operation.category() != Category::Copy || !spec.inputs.iter().chain(&spec.outputs).any(in_host) {
        return None;
    }
    let launches = spec.launch();
    let copies = launches.iter().filter_map(|launch| match launch {
        Launch::Copy(copy) if copy.direction != Direction::DeviceToDevice => {
            Some((copy.direction, copy.bytes() as f64))
        }
        _ => None,
    });
    copies.reduce(|(direction, all), (_, bytes)| (direction, all + bytes))
}
