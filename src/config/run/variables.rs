//! The allowlist of environment variables that a scenario can set, and a suite or a sweep for its runs.
//!
//! A variable is on the list if its library documents it as a number, a word or a list, and if no value can make the
//! library load code, start a program, or read or write a file that the value names. Everything else is refused, so
//! that a scenario from somebody else is safe to run. `--env` has no list, because its user decides.

use crate::base::suggest;

/// Format of a variable's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VariableFormat {
    /// A decimal number with an optional sign, or a hexadecimal one: `32`, `-1`, `0xff`.
    Number,
    /// A word of this list, in upper or lower case.
    Word(&'static [&'static str]),
    /// Words and numbers without a `/`: devices, interfaces, algorithms: `0,1`, `^docker0`, `:4096:8`.
    List,
}

use VariableFormat::{List, Number, Word};

/// Longest value of a list, in bytes.
const MAX_LIST: usize = 256;

/// CUDA and cuBLAS.
const CUDA: &[(&str, VariableFormat)] = &[
    ("CUBLASLT_HEURISTICS_CACHE_CAPACITY", Number),
    ("CUBLASLT_WORKSPACE_SIZE", Number),
    ("CUBLAS_WORKSPACE_CONFIG", List),
    ("CUDA_AUTO_BOOST", Number),
    ("CUDA_BINARY_LOADER_THREAD_COUNT", Number),
    ("CUDA_CACHE_DISABLE", Number),
    ("CUDA_CACHE_MAXSIZE", Number),
    ("CUDA_DEVICE_MAX_CONNECTIONS", Number),
    ("CUDA_DEVICE_MAX_COPY_CONNECTIONS", Number),
    ("CUDA_DEVICE_ORDER", Word(&["FASTEST_FIRST", "PCI_BUS_ID"])),
    ("CUDA_DISABLE_JIT", Number),
    ("CUDA_DISABLE_PTX_JIT", Number),
    ("CUDA_FORCE_JIT", Number),
    ("CUDA_FORCE_PTX_JIT", Number),
    ("CUDA_GRAPHS_USE_NODE_PRIORITY", Number),
    ("CUDA_LAUNCH_BLOCKING", Number),
    ("CUDA_MANAGED_FORCE_DEVICE_ALLOC", Number),
    ("CUDA_MODULE_DATA_LOADING", Word(&["DEFAULT", "LAZY", "EAGER"])),
    ("CUDA_MODULE_LOADING", Word(&["DEFAULT", "LAZY", "EAGER"])),
    ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", Number),
    ("CUDA_MPS_CLIENT_PRIORITY", Number),
    ("CUDA_SCALE_LAUNCH_QUEUES", Word(&["0.25x", "0.5x", "2x", "4x"])),
    ("CUDA_VISIBLE_DEVICES", List),
    ("NVIDIA_TF32_OVERRIDE", Number),
];

/// HIP, and the run-time libraries below it: HSA, ROCr and ROCclr.
const ROCM: &[(&str, VariableFormat)] = &[
    ("AMD_DIRECT_DISPATCH", Number),
    ("AMD_LOG_LEVEL", Number),
    ("AMD_LOG_MASK", Number),
    ("AMD_SERIALIZE_COPY", Number),
    ("AMD_SERIALIZE_KERNEL", Number),
    ("DEBUG_CLR_GRAPH_PACKET_CAPTURE", Number),
    ("DEBUG_CLR_LIMIT_BLIT_WG", Number),
    ("DEBUG_HIP_BLOCK_SYNC", Number),
    ("DEBUG_HIP_DYNAMIC_QUEUES", Number),
    ("GPU_DEVICE_ORDINAL", List),
    ("GPU_MAX_HW_QUEUES", Number),
    ("GPU_STREAMOPS_CP_WAIT", Number),
    ("HIP_FORCE_DEV_KERNARG", Number),
    ("HIP_LAUNCH_BLOCKING", Number),
    ("HIP_VISIBLE_DEVICES", List),
    ("HSA_CU_MASK", List),
    ("HSA_CU_MASK_SKIP_INIT", Number),
    ("HSA_DISABLE_CACHE", Number),
    ("HSA_DISABLE_FRAGMENT_ALLOCATOR", Number),
    ("HSA_ENABLE_COREDUMP", Number),
    ("HSA_ENABLE_INTERRUPT", Number),
    ("HSA_ENABLE_PEER_SDMA", Number),
    ("HSA_ENABLE_SDMA", Number),
    ("HSA_FORCE_FINE_GRAIN_PCIE", Number),
    ("HSA_NO_SCRATCH_RECLAIM", Number),
    ("HSA_OVERRIDE_GFX_VERSION", List),
    ("HSA_SCRATCH_SINGLE_LIMIT", Number),
    ("HSA_XNACK", Number),
    ("ROCR_VISIBLE_DEVICES", List),
    ("ROC_ACTIVE_WAIT_TIMEOUT", Number),
    ("ROC_AQL_QUEUE_SIZE", Number),
    ("ROC_CPU_WAIT_FOR_SIGNAL", Number),
    ("ROC_GLOBAL_CU_MASK", Number),
    ("ROC_P2P_SDMA_SIZE", Number),
    ("ROC_SIGNAL_POOL_SIZE", Number),
    ("ROC_SKIP_KERNEL_ARG_COPY", Number),
    ("ROC_SYSTEM_SCOPE_SIGNAL", Number),
    ("ROC_USE_FGS_KERNARG", Number),
];

/// NCCL, and RCCL, which reads NCCL's names too. Variables are excluded if they name a library (`NCCL_NET_PLUGIN`), a
/// file (`NCCL_TOPO_FILE`, `NCCL_DEBUG_FILE`) or an address to connect to (`NCCL_COMM_ID`).
const COLLECTIVES: &[(&str, VariableFormat)] = &[
    ("NCCL_ALGO", List),
    ("NCCL_BUFFSIZE", Number),
    ("NCCL_CGA_CLUSTER_SIZE", Number),
    ("NCCL_CHECKS_DISABLE", Number),
    ("NCCL_CHECK_POINTERS", Number),
    ("NCCL_COLLNET_ENABLE", Number),
    ("NCCL_COLLNET_NODE_THRESHOLD", Number),
    ("NCCL_CROSS_NIC", Number),
    ("NCCL_CUMEM_ENABLE", Number),
    ("NCCL_CUMEM_HOST_ENABLE", Number),
    ("NCCL_DEBUG", Word(&["VERSION", "WARN", "INFO", "TRACE", "ABORT"])),
    ("NCCL_DEBUG_SUBSYS", List),
    ("NCCL_DMABUF_ENABLE", Number),
    ("NCCL_GRAPH_MIXING_SUPPORT", Number),
    ("NCCL_GRAPH_REGISTER", Number),
    ("NCCL_HOSTID", List),
    ("NCCL_IB_ADAPTIVE_ROUTING", Number),
    ("NCCL_IB_AR_THRESHOLD", Number),
    ("NCCL_IB_CUDA_SUPPORT", Number),
    ("NCCL_IB_DISABLE", Number),
    ("NCCL_IB_FIFO_TC", Number),
    ("NCCL_IB_GID_INDEX", Number),
    ("NCCL_IB_HCA", List),
    ("NCCL_IB_MERGE_NICS", Number),
    ("NCCL_IB_PCI_RELAXED_ORDERING", Number),
    ("NCCL_IB_QPS_PER_CONNECTION", Number),
    ("NCCL_IB_RETRY_CNT", Number),
    ("NCCL_IB_SL", Number),
    ("NCCL_IB_SPLIT_DATA_ON_QPS", Number),
    ("NCCL_IB_TC", Number),
    ("NCCL_IB_TIMEOUT", Number),
    ("NCCL_IGNORE_CPU_AFFINITY", Number),
    ("NCCL_LAUNCH_MODE", Word(&["PARALLEL", "GROUP"])),
    ("NCCL_LAUNCH_ORDER_IMPLICIT", Number),
    ("NCCL_LL128_BUFFSIZE", Number),
    ("NCCL_LL_BUFFSIZE", Number),
    ("NCCL_LOCAL_REGISTER", Number),
    ("NCCL_MAX_CTAS", Number),
    ("NCCL_MAX_NCHANNELS", Number),
    ("NCCL_MIN_CTAS", Number),
    ("NCCL_MIN_NCHANNELS", Number),
    ("NCCL_MNNVL_ENABLE", Number),
    ("NCCL_NCHANNELS_PER_NET_PEER", Number),
    ("NCCL_NCHANNELS_PER_PEER", Number),
    ("NCCL_NET", Word(&["IB", "Socket"])),
    ("NCCL_NET_GDR_C2C", Number),
    ("NCCL_NET_GDR_LEVEL", List),
    ("NCCL_NET_GDR_READ", Number),
    ("NCCL_NET_SHARED_BUFFERS", Number),
    ("NCCL_NET_SHARED_COMMS", Number),
    ("NCCL_NSOCKS_PERTHREAD", Number),
    ("NCCL_NTHREADS", Number),
    ("NCCL_NVLS_CHUNKSIZE", Number),
    ("NCCL_NVLS_ENABLE", Number),
    ("NCCL_NVLS_NCHANNELS", Number),
    ("NCCL_P2P_DIRECT_DISABLE", Number),
    ("NCCL_P2P_DISABLE", Number),
    ("NCCL_P2P_LEVEL", List),
    ("NCCL_P2P_NET_CHUNKSIZE", Number),
    ("NCCL_P2P_NVL_CHUNKSIZE", Number),
    ("NCCL_P2P_PCI_CHUNKSIZE", Number),
    ("NCCL_P2P_PXN_LEVEL", Number),
    ("NCCL_P2P_USE_CUDA_MEMCPY", Number),
    ("NCCL_PROTO", List),
    ("NCCL_PXN_DISABLE", Number),
    ("NCCL_RAS_ENABLE", Number),
    ("NCCL_RUNTIME_CONNECT", Number),
    ("NCCL_SET_STACK_SIZE", Number),
    ("NCCL_SET_THREAD_NAME", Number),
    ("NCCL_SHM_DISABLE", Number),
    ("NCCL_SHM_USE_CUDA_MEMCPY", Number),
    ("NCCL_SOCKET_FAMILY", Word(&["AF_INET", "AF_INET6"])),
    ("NCCL_SOCKET_IFNAME", List),
    ("NCCL_SOCKET_NTHREADS", Number),
    ("NCCL_THREAD_THRESHOLDS", List),
    ("NCCL_WORK_FIFO_BYTES", Number),
    ("RCCL_ENABLE_HIPGRAPH", Number),
    ("RCCL_ENABLE_INTRANET", Number),
    ("RCCL_FORCE_ENABLE_DMABUF", Number),
    ("RCCL_LL128_FORCE_ENABLE", Number),
    ("RCCL_MSCCLPP_ENABLE", Number),
    ("RCCL_MSCCL_ENABLE", Number),
    ("RCCL_MSCCL_ENABLE_SINGLE_PROCESS", Number),
];

/// Names of all variables that a file can set.
pub fn allowed() -> impl Iterator<Item = &'static str> {
    [CUDA, ROCM, COLLECTIVES].into_iter().flatten().map(|(name, _)| *name)
}

/// Checks that a file can set the variable to the value. The error continues a sentence about the variable.
pub(in crate::config) fn check(name: &str, value: &str) -> Result<(), String> {
    let found = [CUDA, ROCM, COLLECTIVES].into_iter().flatten().find(|(known, _)| *known == name);
    let Some((_, form)) = found else { return Err("which is not on the list of variables that a file may set".into()) };
    form.check(value)
}

impl VariableFormat {
    fn check(self, value: &str) -> Result<(), String> {
        match self {
            Number if is_number(value) => Ok(()),
            Number => Err("whose value is not a whole number".to_owned()),
            Word(words) if words.iter().any(|word| word.eq_ignore_ascii_case(value)) => Ok(()),
            Word(words) => Err(format!("whose value is none of {}", suggest::listed(words))),
            List if value.len() <= MAX_LIST && value.chars().all(in_list) => Ok(()),
            List => Err("whose value is not a list of words: no `/`, no spaces".to_owned()),
        }
    }
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let all = |digits: &str, radix: u32| {
        (1..=19).contains(&digits.len()) && digits.chars().all(|digit| digit.is_digit(radix))
    };
    match digits.strip_prefix("0x") {
        Some(digits) => all(digits, 16),
        None => all(digits, 10),
    }
}

fn in_list(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || ",;:.^=-_+".contains(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_allowed_variable_names_code_or_a_file() {
        let suspicious =
            ["PATH", "FILE", "PLUGIN", "INJECTION64", "LIB", "DIR", "DIRECTORY", "PRELOAD", "DUMP", "CONF"];
        for name in allowed() {
            assert!(!name.split('_').any(|word| suspicious.contains(&word)), "{name}");
            assert!(check(name, "/tmp/x").is_err() && check(name, "./x.so").is_err(), "{name} takes a path");
        }
    }

    #[test]
    fn variables_that_load_code_are_refused() {
        let names = "LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT AORTA_LIBRARY_PATH PATH HOME TMPDIR PYTHONPATH CUDA_HOME \
            CUDA_INJECTION64_PATH NVTX_INJECTION64_PATH CUDA_CACHE_PATH CUDA_LOG_FILE NCCL_NET_PLUGIN \
            NCCL_TUNER_PLUGIN NCCL_PROFILER_PLUGIN NCCL_CONF_FILE NCCL_TOPO_FILE NCCL_GRAPH_FILE NCCL_DEBUG_FILE \
            NCCL_COMM_ID HSA_TOOLS_LIB ROCM_PATH HIP_PATH ROCBLAS_TENSILE_LIBPATH HIPBLASLT_TENSILE_LIBPATH \
            RCCL_MSCCL_ALGO_DIR AMD_LOG_LEVEL_FILE ROCP_TOOL_LIB nccl_debug";
        for name in names.split_whitespace() {
            assert!(check(name, "1").is_err(), "{name}");
        }
    }

    #[test]
    fn values_have_their_form() {
        for (name, value) in [
            ("CUDA_DEVICE_MAX_CONNECTIONS", "32"),
            ("NCCL_DEBUG", "warn"),
            ("NCCL_SOCKET_IFNAME", "^docker0,lo"),
            ("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
            ("ROC_GLOBAL_CU_MASK", "0xffff"),
            ("CUDA_VISIBLE_DEVICES", ""),
        ] {
            assert_eq!(check(name, value), Ok(()), "{name}={value}");
        }
        for (name, value) in [
            ("CUDA_DEVICE_MAX_CONNECTIONS", "many"),
            ("CUDA_DEVICE_MAX_CONNECTIONS", ""),
            ("NCCL_DEBUG", "LOUD"),
            ("NCCL_NET", "/tmp/libnccl-net.so"),
            ("NCCL_ALGO", "Ring Tree"),
        ] {
            assert!(check(name, value).is_err(), "{name}={value}");
        }
    }
}
