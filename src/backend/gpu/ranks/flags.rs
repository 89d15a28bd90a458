//! Flags by which ranks synchronize their copies: words in device memory, in host memory, or in host memory that
//! processes share.

use std::io;
use std::sync::atomic::Ordering;

use crate::backend::gpu::api::runtime::Stream;
use crate::backend::gpu::api::{Api, Call};
use crate::backend::shared::SharedMemory;
use crate::exec::{ExecError, Image};

/// Size of a flag in bytes.
pub const FLAG: u64 = 4;

/// The flags of a rank, one for each copy and each partner.
#[derive(Debug, Default)]
pub struct Flags {
    /// Address of the flags in device memory, for streams that raise and await flags without a kernel; 0 if there are
    /// none.
    device: u64,
    /// Address of the flags in host memory, as this device accesses them. Kernels of all devices see changes there.
    host: u64,
    /// The host memory that other processes share; `None` if the ranks are threads of one process.
    shared: Option<SharedMemory>,
}

/// Size of the flags in bytes: for each copy, one word of this rank as a sender, and one word for each rank as a
/// receiver.
fn bytes(image: &Image, ranks: usize) -> u64 {
    u64::from(image.crossings) * (1 + ranks as u64) * FLAG
}

impl Flags {
    /// Creates the flags of an image, all lowered. Empty if the image copies nothing to other ranks.
    pub fn new<A: Api>(api: &A, image: &Image, ranks: usize, stream: Stream) -> Call<Flags> {
        if image.crossings == 0 {
            return Ok(Flags::default());
        }
        let mut flags = Flags::default();
        let lowered = flags.lower(api, bytes(image, ranks), stream);
        if lowered.is_err() {
            // SAFETY: no rank knows the flags yet.
            unsafe { flags.free(api) };
        }
        lowered.map(|()| flags)
    }

    /// Allocates flags of `bytes` bytes, and lowers all.
    fn lower<A: Api>(&mut self, api: &A, bytes: u64, stream: Stream) -> Call {
        self.host = api.allocate_pinned(bytes)?;
        // SAFETY: the memory was allocated with that many bytes, and nothing uses it yet.
        unsafe { std::ptr::write_bytes(self.host as *mut u8, 0, bytes as usize) };
        if A::STEPS_ON_STREAMS {
            self.device = api.allocate(bytes)?;
            // SAFETY: as above.
            unsafe { api.memset(self.device, 0, bytes, stream)? };
        }
        api.synchronize()
    }

    /// Creates the flags of a rank that has a process of its own, in memory that other processes can open.
    pub fn of_process<A: Api>(api: &A, image: &Image, ranks: usize) -> Result<Flags, ExecError> {
        if image.crossings == 0 {
            return Ok(Flags::default());
        }
        // The flags are followed by one word for each rank. A rank sets its word when it has closed the memory that it
        // opened.
        let shared = SharedMemory::create(bytes(image, ranks) + ranks as u64 * FLAG);
        let shared = shared.map_err(|error| no_memory(&error))?;
        let host = registered(api, &shared)?;
        Ok(Flags { device: 0, host, shared: Some(shared) })
    }

    /// The name under which other processes open the flags; `None` if they are not shared.
    pub fn name(&self) -> Option<String> {
        self.shared.as_ref().and_then(SharedMemory::name)
    }

    /// Opens the flags of another process's rank, under the name that it published. Flags of all ranks have the same
    /// size.
    pub fn open_other(&self, name: Option<&str>) -> io::Result<SharedMemory> {
        let bytes = self.shared.as_ref().map_or(0, SharedMemory::bytes);
        SharedMemory::open(name.unwrap_or_default(), bytes)
    }

    /// True if `rank` has closed the memory of this rank that it had opened.
    pub fn closed(&self, rank: u32) -> bool {
        let word = self.shared.as_ref().and_then(|shared| shared.word_from_end(rank as usize));
        word.is_none_or(|word| word.load(Ordering::Acquire) != 0)
    }

    /// Removes the name of the shared memory. Called once every process has opened it.
    pub fn hide(&mut self) {
        self.shared.iter_mut().for_each(SharedMemory::hide);
    }

    /// Addresses of the flags: for ranks whose devices this one can access, and for all other ranks. The latter flags
    /// are in host memory, since a kernel that polls its own device's memory may not see another device's write.
    pub fn begin(&self) -> [u64; 2] {
        [if self.device != 0 { self.device } else { self.host }, self.host]
    }

    /// Frees the flags' memory.
    ///
    /// # Safety
    ///
    /// Nothing uses the flags any more, on this device or on others.
    pub unsafe fn free<A: Api>(&mut self, api: &A) {
        // SAFETY: `new` or `of_process` made all of these; the caller guarantees that nothing uses them.
        unsafe {
            if self.device != 0 {
                api.free(self.device);
            }
            match self.shared.take() {
                Some(shared) => api.unregister(shared.address()),
                None if self.host != 0 => api.free_pinned(self.host),
                None => {}
            }
        }
    }
}

/// Registers shared memory with the device and returns its address there.
pub fn registered<A: Api>(api: &A, shared: &SharedMemory) -> Result<u64, ExecError> {
    // SAFETY: the memory is mapped completely and stays mapped until it is unregistered.
    let registered = unsafe { api.register(shared.address(), shared.bytes()) };
    registered.map_err(ExecError::device)
}

/// The error for memory that cannot be shared.
pub fn no_memory(error: &io::Error) -> ExecError {
    ExecError::Device {
        fault: format!("copies between processes need host memory that both can map: {error}"),
        help: Some("run all ranks in one process: `--ranks N` without a launcher".to_owned()),
    }
}
