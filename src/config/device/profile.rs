//! Device profiles: the known properties of a device, each figure with its source.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::base::visible;
use crate::config::ron::ron_file;
use crate::config::{ConfigError, Mistakes};

use super::figure::{FigureUnit, SourcedFigure};
use super::links::Links;

/// The properties of a device for the simulator and the cost model. Times in nanoseconds, rates per second, sizes in
/// bytes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    #[serde(deserialize_with = "visible::read_line")]
    pub name: String,
    /// The name by which the driver reports the device; `None` if it is `name`.
    pub reported_as: Option<String>,
    /// The vendor: `nvidia` or `amd`.
    #[serde(deserialize_with = "visible::read_line")]
    pub vendor: String,
    /// The compiler's name for the device, such as `sm_90` or `gfx942`.
    #[serde(deserialize_with = "visible::read_line")]
    pub architecture: String,
    pub memory: SourcedFigure,
    /// Number of streaming multiprocessors (NVIDIA) or compute units (AMD).
    pub units: SourcedFigure,
    /// Number of chips that contain the compute units, of a device with partitions.
    #[serde(default = "SourcedFigure::one")]
    pub chips: SourcedFigure,
    /// Peak rates in operations per second: of the matrix units by arithmetic (`f64`, `f32`, `tf32`, `f16`, `bf16`, `f8`, `i8`), of
    /// elementwise arithmetic (`vector`), and of the special-function units for exponentials, reciprocals and roots
    /// (`special`).
    pub peak: BTreeMap<String, SourcedFigure>,
    /// Fraction of the peak instruction rate that kernels achieve. The peak follows from `vector`, with two operations
    /// per instruction.
    pub vector_efficiency: SourcedFigure,
    /// Fraction of the matrix peak that large products achieve.
    pub matrix_efficiency: BTreeMap<String, SourcedFigure>,
    /// Bandwidth of the device's memory in bytes per second.
    pub bandwidth: SourcedFigure,
    /// Fraction of that bandwidth that streaming kernels achieve.
    pub bandwidth_efficiency: SourcedFigure,
    /// Fraction of that bandwidth that kernels achieve that only write; 0 if it is that of other kernels. Memory that reads and writes
    /// loses time when it changes from one to the other.
    #[serde(default = "SourcedFigure::none")]
    pub write_efficiency: SourcedFigure,
    pub cache: SourcedFigure,
    /// Bandwidth of the last-level cache in bytes per second, of reads and writes together.
    pub cache_bandwidth: SourcedFigure,
    /// Bytes per second that kernels read from the last-level cache; 0 if `cache_bandwidth` is the only limit.
    #[serde(default = "SourcedFigure::none")]
    pub cache_reads: SourcedFigure,
    /// Bytes per second that kernels write to the last-level cache; 0 if `cache_bandwidth` is the only limit.
    #[serde(default = "SourcedFigure::none")]
    pub cache_writes: SourcedFigure,
    /// Duration of an empty kernel.
    pub kernel_floor: SourcedFigure,
    /// Additional time for the first access to memory.
    pub memory_latency: SourcedFigure,
    /// Additional time of a `memset` by the runtime.
    #[serde(default = "SourcedFigure::none")]
    pub memset_latency: SourcedFigure,
    /// Share of the cache's lines that a flush leaves modified. A line that replaces one of them first has it written to memory.
    #[serde(default = "SourcedFigure::none")]
    pub flush_modified: SourcedFigure,
    /// Mean time from an instruction of a thread to its next one.
    #[serde(default = "SourcedFigure::none")]
    pub instruction_latency: SourcedFigure,
    /// Time for which a thread waits for an element in memory.
    #[serde(default = "SourcedFigure::none")]
    pub memory_wait: SourcedFigure,
    /// Time for which a thread waits for an element in the last-level cache.
    #[serde(default = "SourcedFigure::none")]
    pub cache_wait: SourcedFigure,
    /// Time in which the threads of a block exchange values.
    #[serde(default = "SourcedFigure::none")]
    pub block_exchange: SourcedFigure,
    /// Time from a block's publication of a value until another block of the launch has received it.
    #[serde(default = "SourcedFigure::none")]
    pub block_handoff: SourcedFigure,
    /// Time in which a compute unit starts a block.
    #[serde(default = "SourcedFigure::none")]
    pub block_start: SourcedFigure,
    /// Bytes per second that a compute unit reads.
    #[serde(default = "SourcedFigure::none")]
    pub unit_reads: SourcedFigure,
    /// Bytes per second that a compute unit writes.
    #[serde(default = "SourcedFigure::none")]
    pub unit_writes: SourcedFigure,
    /// Minimum duration of a matrix product.
    pub matrix_floor: SourcedFigure,
    /// Additional time of a product whose depth blocks share.
    #[serde(default = "SourcedFigure::none")]
    pub matrix_join: SourcedFigure,
    /// Fraction of the matrix units' rate that products of 8 and 16 bits achieve if their rows are not aligned to 16
    /// bytes.
    #[serde(default = "SourcedFigure::one")]
    pub unaligned_matrix: SourcedFigure,
    /// Fraction of the memory bandwidth that products of 8 and 16 bits with unaligned rows achieve.
    #[serde(default = "SourcedFigure::one")]
    pub unaligned_bandwidth: SourcedFigure,
    /// Time from an operation's end to the next one's start on the same stream.
    pub gap_same: SourcedFigure,
    /// Time from an operation's end to the start of one on another stream that waits for it.
    pub gap_event: SourcedFigure,
    /// Time in which a stream executes a wait for an event that has happened; none by default.
    #[serde(default = "SourcedFigure::none")]
    pub gap_wait: SourcedFigure,
    /// Further time if one of the two runs on compute units and the other on a copy engine, or if they run on engines of different
    /// directions; none by default.
    #[serde(default = "SourcedFigure::none")]
    pub gap_engine: SourcedFigure,
    /// Time from a stamp to the start of the operation after it, besides `gap_same` or `gap_event`; none by default.
    #[serde(default = "SourcedFigure::none")]
    pub gap_stamp: SourcedFigure,
    /// Time from the end of a launching call on the host to the earliest start on the device.
    pub launch_latency: SourcedFigure,
    pub host: HostCosts,
    pub graph: GraphCosts,
    pub queues: Queues,
    pub host_to_device: CopyEngines,
    pub device_to_host: CopyEngines,
    /// Limits of the link to the host, which all traffic on it shares.
    pub host_link: HostLink,
    /// Bandwidth of copies to and from pageable host memory, which block the host.
    pub pageable_bandwidth: SourcedFigure,
    /// The memory of the host, as threads of its CPU use it.
    #[serde(default)]
    pub host_memory: HostMemory,
    /// Minimum duration of a collective on one rank.
    pub collective_floor: SourcedFigure,
    /// Links between devices of this model. The file of a profile names one of the embedded topologies.
    #[serde(deserialize_with = "Links::by_name")]
    pub topology: Links,
}

/// Durations of calls on the host.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostCosts {
    pub kernel: SourcedFigure,
    pub matrix: SourcedFigure,
    /// A copy to or from host memory.
    pub copy: SourcedFigure,
    /// A copy within the device.
    pub copy_on_device: SourcedFigure,
    pub memset: SourcedFigure,
    pub collective: SourcedFigure,
    pub record: SourcedFigure,
    pub wait: SourcedFigure,
    /// Recording a timed event.
    pub stamp: SourcedFigure,
    /// Number of calls that can be pending on a stream before the host blocks.
    pub queue_depth: SourcedFigure,
}

/// Durations of launching and running a graph, in nanoseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphCosts {
    /// Host time to launch a graph.
    pub launch: SourcedFigure,
    /// Additional host time for each node without dependencies after the first.
    pub launch_branch: SourcedFigure,
    /// Time from the end of a node to the start of one that waits for it.
    pub gap: SourcedFigure,
    /// Time from the start of a graph to that of its first node; none by default.
    #[serde(default = "SourcedFigure::none")]
    pub start: SourcedFigure,
    /// Time for which the launch of a node, or the end of one of several branches, occupies the front end.
    pub dispatch: SourcedFigure,
    /// Time in which the front end changes to the hardware queue of another branch; none by default.
    #[serde(default = "SourcedFigure::none")]
    pub switch: SourcedFigure,
    /// Time of the wait of a branch for another branch of the graph's previous launch, which has not ended; none by default.
    #[serde(default = "SourcedFigure::none")]
    pub branch_wait: SourcedFigure,
}

/// Hardware queues.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queues {
    pub count: SourcedFigure,
    /// True if each priority has queues of its own.
    pub by_priority: bool,
    pub rule: QueueRule,
    /// Time in nanoseconds for which the launch of a kernel occupies the front end, which all queues of a device share; 0 if it is not known.
    #[serde(default = "SourcedFigure::none")]
    pub dispatch: SourcedFigure,
    /// Time in nanoseconds in which the front end changes from one queue to another; 0 if it is not known.
    #[serde(default = "SourcedFigure::none")]
    pub switch: SourcedFigure,
}

/// Largest number of hardware queues to which a variable can set a device.
pub const MAX_QUEUES: usize = 32;

/// Largest copy between two devices, in bytes, for which HIP's runtime uses a kernel, unless ROC_P2P_SDMA_SIZE is set.
/// Versions 5.6 to 7 have the same value.
pub const PEER_KERNEL_BYTES: u64 = 1 << 20;

/// The variable that sets the number of hardware queues of a vendor's devices.
pub fn queues_variable(vendor: &str) -> &'static str {
    if vendor == "amd" { "GPU_MAX_HW_QUEUES" } else { "CUDA_DEVICE_MAX_CONNECTIONS" }
}

/// Condition under which a queue proceeds to its next entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueueRule {
    /// A queue proceeds once its entry has started: an entry that waits blocks the entries of other streams behind it
    /// (head-of-line blocking).
    HeadOfLine,
    /// A queue proceeds once its entry is complete: the streams of a queue are serialized.
    Serial,
}

/// Limits of the link to the host that directions and kinds of traffic share.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostLink {
    /// Bandwidth of copies in both directions together, in bytes per second.
    pub both: SourcedFigure,
    /// Bandwidth of kernels that read pinned memory, in bytes per second.
    pub kernel_reads: SourcedFigure,
    /// Bandwidth of kernels that write pinned memory, in bytes per second.
    pub kernel_writes: SourcedFigure,
    /// Additional time of a kernel for its first access to pinned memory.
    pub latency: SourcedFigure,
    /// Fraction of the opposite direction that a kernel's traffic occupies.
    pub kernel_other_way: SourcedFigure,
}

/// The memory of the host, for operations on host streams.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostMemory {
    /// Bytes per second that one thread reads and writes.
    pub thread: SourcedFigure,
    /// Bytes per second of all threads together.
    pub bandwidth: SourcedFigure,
    /// Time in ns in which a thread converts a value to `f64` or back, with its part of the arithmetic.
    #[serde(default = "HostMemory::value")]
    pub value: SourcedFigure,
}

impl HostMemory {
    /// The time of a value for a profile that does not give it.
    fn value() -> SourcedFigure {
        let source = "assumed: as beside an H100, where eight threads compute AdamW at 17.55 GB/s, 12.8 ns a parameter and thread; 28 \
                      bytes at 12 GB/s (assumed) take 2.3 ns, and it has seven values (docs/measurements/2026-11-25-workloads.md)";
        SourcedFigure(1.5, source.to_owned())
    }
}

impl Default for HostMemory {
    /// Values for a profile that does not give them, since the host differs from machine to machine.
    fn default() -> Self {
        let assumed =
            |rate: f64| SourcedFigure(rate, "assumed: a server of 2023 with twelve channels of DDR5-4800".to_owned());
        HostMemory { thread: assumed(12e9), bandwidth: assumed(300e9), value: HostMemory::value() }
    }
}

/// Copy engines of one direction.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyEngines {
    pub engines: SourcedFigure,
    /// Minimum duration of a copy.
    pub latency: SourcedFigure,
    /// Bandwidth of one engine in bytes per second.
    pub bandwidth: SourcedFigure,
    /// Bandwidth that copies achieve on the link that they share, in bytes per second.
    pub link: SourcedFigure,
    /// Signalling rate of the link in bytes per second; `None` if it is not known, and `link` is used.
    pub peak: Option<SourcedFigure>,
}

impl CopyEngines {
    /// Peak rate of the link in this direction, in bytes per second.
    pub fn peak(&self) -> f64 {
        self.peak.as_ref().unwrap_or(&self.link).value()
    }
}

/// Profiles embedded in the program: name, text, and the profile as soon as the text was read. Runs and reports need it several times.
static EMBEDDED: [(&str, &str, OnceLock<Profile>); 5] = [
    ("h100", include_str!("../../../config/devices/h100.ron"), OnceLock::new()),
    ("h200", include_str!("../../../config/devices/h200.ron"), OnceLock::new()),
    ("mi300x", include_str!("../../../config/devices/mi300x.ron"), OnceLock::new()),
    ("mi325x", include_str!("../../../config/devices/mi325x.ron"), OnceLock::new()),
    ("mi355x", include_str!("../../../config/devices/mi355x.ron"), OnceLock::new()),
];

impl Profile {
    /// True if thread blocks form clusters: on NVIDIA's devices of compute capability 9.0 and later.
    pub fn has_clusters(&self) -> bool {
        self.capability().is_some_and(|number| number >= 90)
    }

    /// Size in bytes of the largest copy between devices that the runtime makes by a kernel; 0 if engines make all.
    pub fn peer_kernel_bytes(&self) -> f64 {
        if self.vendor == "amd" { PEER_KERNEL_BYTES as f64 } else { 0.0 }
    }

    /// The compute capability of an NVIDIA device without its point, such as 90; `None` for other devices.
    fn capability(&self) -> Option<u32> {
        let digits = self.architecture.strip_prefix("sm_")?;
        digits.trim_end_matches(char::is_alphabetic).parse().ok()
    }

    /// The most shared memory of a block in bytes; `None` for an unknown architecture (CUDA C++ Programming Guide, "Technical
    /// Specifications per Compute Capability"; AMD's instruction set manuals of CDNA 3 and 4, "Local Data Share").
    pub fn block_shared(&self) -> Option<u64> {
        let kibibytes = match (self.capability(), self.architecture.as_str()) {
            (Some(80 | 87), _) => 163,
            (Some(86 | 89 | 120 | 121), _) => 99,
            (Some(90..=119), _) => 227,
            (None, "gfx950") => 160,
            (None, name) if name.starts_with("gfx9") => 64,
            _ => return None,
        };
        Some(kibibytes << 10)
    }

    /// Parses a profile. `file` is its name in messages.
    pub fn parse(file: &str, text: &str) -> Result<Profile, ConfigError> {
        let help = "config/devices/h200.ron is a whole profile";
        let (profile, mut mistakes) = ron_file::read::<Profile>(file, text, help);
        profile.iter().for_each(|profile| profile.check(&mut mistakes));
        ron_file::strict((profile, mistakes))
    }

    /// Names of the embedded profiles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        EMBEDDED.iter().map(|(name, ..)| *name)
    }

    /// An embedded profile or one of its partitions: `mi300x`, `mi300x-cpx`.
    pub fn named(name: &str) -> Result<Profile, ConfigError> {
        let unknown = |help| ConfigError::UnknownProfile { name: name.to_owned(), help };
        let (device, mode) = name.split_once('-').map_or((name, None), |(device, mode)| (device, Some(mode)));
        let Some((device, text, parsed)) = EMBEDDED.iter().find(|(known, ..)| *known == device) else {
            return Err(unknown(crate::base::suggest::did_you_mean(name, Profile::names().collect::<Vec<_>>())));
        };
        let parse = || Profile::parse(&format!("{device}.ron"), text).expect("a test reads every embedded file");
        let profile = parsed.get_or_init(parse).clone();
        let Some(mode) = mode else { return Ok(profile) };
        let modes: Vec<String> = profile.modes().map(|mode| format!("{device}-{mode}")).collect();
        let help = match modes.as_slice() {
            [] => format!("`{device}` is one piece: it has no partitions"),
            modes => format!("with its partitions: `{}`", modes.join("`, `")),
        };
        profile.partition(mode).ok_or_else(|| unknown(Some(help)))
    }

    /// The embedded profile of the device that the driver reports as `name`; `None` if there is none.
    pub fn of_device(name: &str) -> Option<Profile> {
        let mut profiles = Profile::names().filter_map(|profile| Profile::named(profile).ok());
        profiles.find(|profile| profile.reported_as.as_ref().unwrap_or(&profile.name) == name)
    }

    fn check(&self, mistakes: &mut Mistakes) {
        use FigureUnit::{Bytes, Count, Nanoseconds, PerSecond, Share};
        let (host, graph, link) = (&self.host, &self.graph, &self.host_link);
        let figures = [
            ("chips", &self.chips, Count),
            ("units", &self.units, Count),
            ("queues.count", &self.queues.count, Count),
            ("host.queue_depth", &host.queue_depth, Count),
            ("host_to_device.engines", &self.host_to_device.engines, Count),
            ("device_to_host.engines", &self.device_to_host.engines, Count),
            ("memory", &self.memory, Bytes),
            ("cache", &self.cache, Bytes),
            ("vector_efficiency", &self.vector_efficiency, Share),
            ("bandwidth_efficiency", &self.bandwidth_efficiency, Share),
            ("unaligned_matrix", &self.unaligned_matrix, Share),
            ("unaligned_bandwidth", &self.unaligned_bandwidth, Share),
            ("bandwidth", &self.bandwidth, PerSecond),
            ("cache_bandwidth", &self.cache_bandwidth, PerSecond),
            ("host_to_device.bandwidth", &self.host_to_device.bandwidth, PerSecond),
            ("host_to_device.link", &self.host_to_device.link, PerSecond),
            ("device_to_host.bandwidth", &self.device_to_host.bandwidth, PerSecond),
            ("device_to_host.link", &self.device_to_host.link, PerSecond),
            ("host_link.both", &link.both, PerSecond),
            ("host_link.kernel_reads", &link.kernel_reads, PerSecond),
            ("host_link.kernel_writes", &link.kernel_writes, PerSecond),
            ("pageable_bandwidth", &self.pageable_bandwidth, PerSecond),
            ("host_memory.thread", &self.host_memory.thread, PerSecond),
            ("host_memory.bandwidth", &self.host_memory.bandwidth, PerSecond),
        ];
        // Zero says that the figure is not known, or that it is no limit of its own.
        let or_zero = [
            ("write_efficiency", &self.write_efficiency, Share),
            ("flush_modified", &self.flush_modified, Share),
            ("host_link.kernel_other_way", &link.kernel_other_way, Share),
            ("cache_reads", &self.cache_reads, PerSecond),
            ("cache_writes", &self.cache_writes, PerSecond),
            ("unit_reads", &self.unit_reads, PerSecond),
            ("unit_writes", &self.unit_writes, PerSecond),
        ];
        let times = [
            ("kernel_floor", &self.kernel_floor),
            ("memory_latency", &self.memory_latency),
            ("memset_latency", &self.memset_latency),
            ("instruction_latency", &self.instruction_latency),
            ("memory_wait", &self.memory_wait),
            ("cache_wait", &self.cache_wait),
            ("block_exchange", &self.block_exchange),
            ("block_handoff", &self.block_handoff),
            ("block_start", &self.block_start),
            ("matrix_floor", &self.matrix_floor),
            ("matrix_join", &self.matrix_join),
            ("gap_same", &self.gap_same),
            ("gap_event", &self.gap_event),
            ("gap_wait", &self.gap_wait),
            ("gap_engine", &self.gap_engine),
            ("gap_stamp", &self.gap_stamp),
            ("launch_latency", &self.launch_latency),
            ("host.kernel", &host.kernel),
            ("host.matrix", &host.matrix),
            ("host.copy", &host.copy),
            ("host.copy_on_device", &host.copy_on_device),
            ("host.memset", &host.memset),
            ("host.collective", &host.collective),
            ("host.record", &host.record),
            ("host.wait", &host.wait),
            ("host.stamp", &host.stamp),
            ("graph.launch", &graph.launch),
            ("graph.launch_branch", &graph.launch_branch),
            ("graph.gap", &graph.gap),
            ("graph.start", &graph.start),
            ("graph.dispatch", &graph.dispatch),
            ("graph.switch", &graph.switch),
            ("graph.branch_wait", &graph.branch_wait),
            ("queues.dispatch", &self.queues.dispatch),
            ("queues.switch", &self.queues.switch),
            ("host_to_device.latency", &self.host_to_device.latency),
            ("device_to_host.latency", &self.device_to_host.latency),
            ("host_link.latency", &link.latency),
            ("host_memory.value", &self.host_memory.value),
            ("collective_floor", &self.collective_floor),
        ];
        let mut bad = |path: &[&str], value: String, why: &str| {
            let help = "the shipped profiles show usual values".to_owned();
            let (name, why) = (path.join("."), why.to_owned());
            mistakes.add(path, ConfigError::BadValue { name, value, why, help });
        };
        let peaks = [("host_to_device.peak", &self.host_to_device), ("device_to_host.peak", &self.device_to_host)];
        let peaks = peaks.into_iter().filter_map(|(name, engines)| Some((name, engines.peak.as_ref()?, PerSecond)));
        let known = or_zero.into_iter().filter(|(_, figure, _)| figure.value() != 0.0);
        let times = times.into_iter().map(|(name, figure)| (name, figure, Nanoseconds));
        for (name, figure, unit) in figures.into_iter().chain(peaks).chain(known).chain(times) {
            if let Some(why) = unit.refusal(figure.value()) {
                bad(&name.split('.').collect::<Vec<_>>(), figure.value().to_string(), why);
            }
        }
        for (name, engines) in [("host_to_device", &self.host_to_device), ("device_to_host", &self.device_to_host)] {
            if engines.bandwidth.value().max(engines.link.value()) > engines.peak() {
                bad(&[name, "peak"], engines.peak().to_string(), "no copy exceeds the peak of its link");
            }
        }
        let types = ["f64", "f32", "tf32", "f16", "bf16", "f8", "i8"];
        let of_types = [("peak", &self.peak), ("matrix_efficiency", &self.matrix_efficiency)]
            .into_iter()
            .flat_map(|(table, entries)| types.map(|name| (table, entries, name)));
        for (table, entries, name) in of_types.chain(["vector", "special"].map(|name| ("peak", &self.peak, name))) {
            let unit = if table == "peak" { PerSecond } else { Share };
            match entries.get(name) {
                None => bad(&[table, name], "left out".to_owned(), "the simulator needs it"),
                Some(figure) => {
                    let refusal = unit.refusal(figure.value());
                    refusal.into_iter().for_each(|why| bad(&[table, name], figure.value().to_string(), why));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_profiles_are_good_and_sourced() {
        for name in Profile::names() {
            let profile = Profile::named(name).unwrap();
            for figure in profile.peak.values().chain([&profile.bandwidth, &profile.units, &profile.queues.count]) {
                assert!(!figure.1.is_empty(), "{name}: every figure says where it comes from");
            }
        }
    }

    #[test]
    fn a_device_has_the_profile_of_its_name() {
        let profile = |name: &str| Profile::of_device(name).map(|profile| profile.name);
        assert_eq!(profile("NVIDIA H200").as_deref(), Some("NVIDIA H200"));
        assert_eq!(
            profile("NVIDIA H100 80GB HBM3").as_deref(),
            Some("NVIDIA H100"),
            "the driver's name of an H100 SXM"
        );
        assert_eq!(profile("NVIDIA H100 PCIe"), None, "it has fewer units and other memory");
        assert_eq!(profile("NVIDIA H100"), None, "no driver reports it");
    }

    #[test]
    fn mistakes_are_reported() {
        let text = EMBEDDED[0].1.replace("kernel_floor", "kernel_flor");
        assert!(matches!(Profile::parse("x.ron", &text), Err(ConfigError::File(_))));
        let text = EMBEDDED[0].1.replacen("gap_same: (", "gap_same: (-", 1);
        let error = Profile::parse("x.ron", &text).unwrap_err().to_string();
        assert!(error.contains("a figure is a number from 0 on, not -"), "{error}");
        for (good, bad, why) in [
            ("units: (132", "units: (132.5", "a count is a whole number from 1 to 1000000"),
            ("kernel_floor: (", "kernel_floor: (9999999", "a time is 0 to 1e9 ns"),
            ("bandwidth_efficiency: (0", "bandwidth_efficiency: (2", "a share is 0.001 to 1"),
        ] {
            let text = EMBEDDED[0].1.replacen(good, bad, 1);
            assert_ne!(text, EMBEDDED[0].1, "{good}");
            let error = Profile::parse("x.ron", &text).unwrap_err();
            let ConfigError::File(mistakes) = &error else { panic!("{error}") };
            assert!(format!("{mistakes:?}").contains(why), "{good}: {mistakes:?}");
        }
        assert!(matches!(Profile::named("h20"), Err(ConfigError::UnknownProfile { help: Some(_), .. })));
    }
}
